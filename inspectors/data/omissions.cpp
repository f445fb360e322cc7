// Judges samples of the dataset that no rank reads, and indices beyond it.
#include <fmt/format.h>

#include <algorithm>

#include "inspectors/data/judge.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

/// Whether a sampler dropped the omitted samples so that all ranks have the same number of full batches.
bool dropped_last(const DataJudge& judge) {
  const auto& samples = judge.shares.numbers.samples;
  if (!all_equal(samples) || judge.shares.readings.repeated_reads > 0 || judge.outside) return false;
  const int64_t world = static_cast<int64_t>(judge.about.ranks.size()), count = samples[0];
  const int64_t unit = judge.shares.batch_unit;
  const int64_t fewest = *judge.shares.size / world, most = (*judge.shares.size + world - 1) / world;
  return count == fewest || (count % unit == 0 && (count == fewest / unit * unit || count == most / unit * unit));
}

/// Returns the finding that explains the omissions: a read of a sample that another rank has, or that does not exist,
/// is one that an omitted sample did not get.
std::optional<size_t> cause_of_omissions(const DataJudge& judge) {
  const Readings& readings = judge.shares.readings;
  if (judge.division) return judge.division;
  if (judge.doubled && readings.omitted_count <= readings.repeated_reads) return judge.doubled;
  if (judge.outside && readings.omitted_count <= static_cast<int64_t>(readings.outside.size())) return judge.outside;
  return std::nullopt;
}

}  // namespace

void judge_indices(DataJudge& judge) {
  const Readings& readings = judge.shares.readings;
  if (readings.outside.empty()) return;
  Finding found = judge.finding(Severity::fault, Verdict::mismatch, FindingKind::index, readings.outsiders);
  found.reference_ranks = judge.about.ranks - readings.outsiders;
  found.message =
      fmt::format("{} read{} {} beyond a dataset of {}: {}", readings.outsiders.words(),
                  verb_ending(readings.outsiders), counted(static_cast<int64_t>(readings.outside.size()), "sample"),
                  *judge.shares.size, first_few(readings.outside));
  judge.outside = judge.add(std::move(found));
}

void judge_omissions(DataJudge& judge) {
  const Readings& readings = judge.shares.readings;
  if (readings.omitted_count == 0 || judge.shares.with_replacement) return;
  const bool fault = !dropped_last(judge);
  const std::string what =
      fmt::format("{} of {} samples {} read by no rank: {}", readings.omitted_count, *judge.shares.size,
                  readings.omitted_count == 1 ? "is" : "are", first_few(readings.omitted));
  if (const auto cause = cause_of_omissions(judge); fault && cause) {
    judge.add_consequence(*cause, what);
    if (cause == judge.outside && readings.omitted.front() == 0 &&
        readings.omitted_count == static_cast<int64_t>(readings.outside.size()))
      judge.findings[*cause].message += fmt::format(". Is every index {} too high?", readings.omitted_count);
    return;
  }
  Finding found = judge.finding(fault ? Severity::fault : Severity::note, fault ? Verdict::missing : Verdict::ok,
                                FindingKind::sample, judge.about.ranks);
  found.message = what;
  if (!judge.short_share.empty()) set_ranks(found, judge.majority_or_fewer(judge.shares.numbers.samples));
  if (!fault) found.message += "; the last are dropped so that all ranks have the same number";
  const size_t index = judge.add(std::move(found));
  if (!judge.short_share.empty()) judge.add_consequence(index, judge.short_share);
}

}  // namespace lockstep::inspect
