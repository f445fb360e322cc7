// Whether all ranks have the same number of batches, and batches of the same sizes.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/watch/spelling.h"
#include "inspectors/data/judge.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

/// Whether the samples that ranks with fewer lack are those that no rank reads: their shares were cut off.
bool is_cut_off(const DataJudge& judge) {
  const Readings& readings = judge.shares.readings;
  const auto& samples = judge.shares.numbers.samples;
  const int64_t most = *std::ranges::max_element(samples);
  int64_t missing = 0;
  for (const int64_t each : samples) missing += most - each;
  return readings.omitted_count > 0 && readings.repeated_reads == 0 && readings.omitted_count <= missing &&
         readings.omitted_count > missing - static_cast<int64_t>(judge.about.ranks.size());
}

bool same_batches(const SampleOrders& orders) {
  return std::ranges::all_of(orders.batches, [&](const auto& each) { return each == orders.batches[0]; });
}

bool only_last_batches_differ(const SampleOrders& orders) {
  return std::ranges::all_of(orders.batches, [&](const auto& each) {
    return each.empty() || std::equal(each.begin(), each.end() - 1, orders.batches[0].begin());
  });
}

}  // namespace

void judge_counts(DataJudge& judge) {
  const Shares& shares = judge.shares;
  const bool known = !shares.numbers.batches.empty();
  const std::vector<int64_t>& counts = known ? shares.numbers.batches : shares.numbers.samples;
  if (all_equal(counts)) return;
  const std::string numbers = judge.by_rank(counts);
  std::string consequence = fmt::format("numbers of {} differ: {}", known ? "batches" : "samples", numbers);
  if (!shares.join && judge.division) return judge.add_consequence(*judge.division, consequence);
  const bool other_sizes = known && !all_equal(shares.batch_sizes);
  Finding found =
      judge.finding(shares.join ? Severity::note : Severity::fault, shares.join ? Verdict::ok : Verdict::uneven_data,
                    known ? FindingKind::batch : FindingKind::sample, judge.about.ranks);
  set_ranks(found, other_sizes ? majority_of(judge.about.ranks, shares.batch_sizes) : judge.majority_or_fewer(counts));
  found.message = fmt::format("{}: {}", known ? "batches" : "samples", numbers);
  if (other_sizes) found.message += fmt::format("; samples in a batch: {}", judge.by_rank(shares.batch_sizes));
  if (shares.join)
    found.message += "; the loop runs under join(), which allows this";
  else if (known)
    found.message += fmt::format(
        "; in batch {} ranks wait forever for those that have fewer. {}", *std::ranges::min_element(counts) + 1,
        other_sizes ? "Use the same batch size on all ranks" : "Drop the last batch, pad, or train under join()");
  else
    found.message += fmt::format(
        "; some ranks may have one batch more, and wait in it forever for the others. Give the batch size to check "
        "that ({}), pad, or train under join()",
        option_text("batch_size", "N"));
  if (!shares.join && !other_sizes && is_cut_off(judge)) {
    judge.short_share = std::move(consequence);
    return;
  }
  judge.add(std::move(found));
}

/// All ranks have the same number of batches, but not the same sizes.
void judge_batch_sizes(DataJudge& judge) {
  const Shares& shares = judge.shares;
  const DataNumbers& numbers = shares.numbers;
  if (numbers.batches.empty() || !all_equal(numbers.batches)) return;
  const bool same_samples = all_equal(numbers.samples), listed = !judge.orders.batches.empty();
  if (same_samples && (!listed || same_batches(judge.orders))) return;
  const RankSet fewer = judge.with_fewer(same_samples ? shares.batch_sizes : numbers.samples);
  const std::string batches = counted(numbers.batches[0], "batch");
  Finding found =
      judge.finding(Severity::note, Verdict::ok, same_samples ? FindingKind::batch : FindingKind::sample, fewer);
  found.reference_ranks = judge.about.ranks - fewer;
  if (!all_equal(shares.batch_sizes)) {
    set_ranks(found, majority_of(judge.about.ranks, shares.batch_sizes));
    found.message =
        fmt::format("samples in a batch: {}; every rank has {}", judge.by_rank(shares.batch_sizes), batches);
  } else if (!same_samples) {
    found.message = fmt::format("samples: {}; every rank has {}", judge.by_rank(numbers.samples), batches);
    if (!listed || only_last_batches_differ(judge.orders))
      found.message += fmt::format(", of which the last is smaller on {}", fewer.words());
  } else {
    found.ranks = judge.about.ranks;
    found.message = fmt::format("every rank has {}, but some of the same number differ in size", batches);
  }
  found.message +=
      "; if each rank's loss is a mean, samples of smaller batches have more weight after averaging over ranks";
  judge.add(std::move(found));
}

}  // namespace lockstep::inspect
