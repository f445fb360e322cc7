// Judges whether ranks divide the samples: each its own share of one order.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collectives/watch/spelling.h"
#include "inspectors/data/judge.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

/// Ranks that assume datasets of different sizes read shares of different orders.
void judge_sizes(DataJudge& judge) {
  if (!judge.shares.sizes_differ) return;
  std::vector<int64_t> sizes;
  for (const DataFacts& each : judge.facts) sizes.push_back(each.size.value_or(*judge.shares.size));
  Finding found = judge.finding(Severity::fault, Verdict::mismatch, FindingKind::size, judge.about.ranks);
  set_ranks(found, majority_of(judge.about.ranks, sizes));
  found.message = fmt::format(
      "size of the dataset: {}; ranks that divide datasets of different sizes read other shares", judge.by_rank(sizes));
  judge.division = judge.add(std::move(found));
}

/// Ranks that shuffle for different epochs read shares of different orders.
void judge_epochs(DataJudge& judge) {
  const Shares& shares = judge.shares;
  if (shares.padded || shares.readings.shared.empty() || judge.division) return;
  for (size_t i = 0; i < judge.findings.size(); ++i) {
    const Finding& each = judge.findings[i];
    if (each.kind == FindingKind::epoch && is_fault(each) && each.ranks != judge.about.ranks) judge.division = i;
  }
  if (judge.division || !shares.shuffled) return;
  std::vector<int64_t> epochs;
  for (const DataFacts& each : judge.facts) {
    if (!each.reported_epoch) return;
    epochs.push_back(*each.reported_epoch);
  }
  if (all_equal(epochs)) return;
  Finding found = judge.finding(Severity::fault, Verdict::duplicate_data, FindingKind::epoch, judge.about.ranks);
  set_ranks(found, majority_of(judge.about.ranks, epochs));
  found.message = fmt::format(
      "the samplers are in different epochs, so ranks take their shares from different orders: epoch {}. Call "
      "set_epoch() on every rank before an epoch begins",
      judge.by_rank(epochs));
  judge.division = judge.add(std::move(found));
}

/// Some ranks read everything, and the others their shares.
void judge_undivided(DataJudge& judge) {
  const Shares& shares = judge.shares;
  if (judge.division || shares.with_replacement || shares.readings.shared.empty()) return;
  RankSet undivided;
  for (size_t i = 0; i < shares.numbers.samples.size(); ++i)
    if (shares.numbers.samples[i] == shares.size.value_or(shares.readings.distinct))
      undivided.insert(judge.about.rank_at(i));
  const RankSet others = judge.about.ranks - undivided;
  if (undivided.empty() || others.empty()) return;
  Finding found = judge.finding(Severity::fault, Verdict::duplicate_data, FindingKind::sample, undivided);
  found.reference_ranks = others;
  found.message = fmt::format("{} read{} all {}, also those of {}: the data is not divided there", undivided.words(),
                              verb_ending(undivided), counted(shares.readings.distinct, "sample"), others.words());
  judge.division = judge.add(std::move(found));
}

/// Takes ranks that read the same samples in the same order. Returns whether that explains all shared samples.
bool judge_same_order(DataJudge& judge) {
  const RankSet& ranks = judge.about.ranks;
  bool all = false;
  RankSet reported;
  for (const RankSet& each : same_order(judge.orders, ranks)) {
    const auto rank_index = static_cast<size_t>(std::ranges::find(ranks, each.ranks().front()) - ranks.begin());
    const auto& samples = judge.orders.samples[rank_index];
    if (judge.shares.padded && samples.size() == 1) continue;  // the dataset has fewer samples than there are ranks
    all = all || each == ranks;
    reported = reported | each;
    if (judge.division) continue;
    Finding found = judge.finding(Severity::fault, Verdict::duplicate_data, FindingKind::order, each);
    found.message = fmt::format(
        "{} read the same {} in the same order ({}): the data is not divided between them, so they compute the same "
        "gradients. Give the sampler the number of ranks and the number of the rank",
        each.words(), counted(static_cast<int64_t>(samples.size()), "sample"), first_few(samples));
    judge.doubled = judge.add(std::move(found));
  }
  return all || (!reported.empty() && (judge.shares.readings.sharers - reported).empty());
}

void judge_common_samples(DataJudge& judge) {
  const Readings& readings = judge.shares.readings;
  if (readings.shared.empty()) return;
  const bool drawn = judge.shares.with_replacement;
  const auto count = static_cast<int64_t>(readings.shared.size());
  const std::string what = fmt::format("{} read {} in common: {}", readings.sharers.words(), counted(count, "sample"),
                                       first_few(readings.shared));
  if (judge.division && !drawn) {
    // The finding about ranks that read everything has this already.
    if (judge.findings[*judge.division].kind != FindingKind::sample) judge.add_consequence(*judge.division, what);
    return;
  }
  Finding found = judge.finding(drawn ? Severity::note : Severity::fault, drawn ? Verdict::ok : Verdict::duplicate_data,
                                FindingKind::sample, readings.sharers);
  found.message = what;
  const bool everything = readings.sharers == judge.about.ranks && count == readings.distinct &&
                          readings.repeated_reads == count * (static_cast<int64_t>(judge.about.ranks.size()) - 1);
  if (drawn)
    found.message += "; samples are repeated within a rank, too, as in drawing with replacement";
  else if (everything)
    found.message += ". Every rank reads all of the data in its own order: the data is not divided";
  else if (judge.shares.shuffled)
    found.message += ". Do the ranks shuffle with different seeds before they take their shares?";
  const size_t index = judge.add(std::move(found));
  if (!drawn && !judge.doubled) judge.doubled = index;
}

/// Takes ranks that draw with replacement.
void judge_repeats(DataJudge& judge) {
  const Readings& readings = judge.shares.readings;
  Finding found = judge.finding(Severity::note, Verdict::ok, FindingKind::repeat, readings.repeaters);
  found.message = fmt::format("{} read{} samples more than once in the epoch ({}), as in drawing with replacement",
                              readings.repeaters.words(), verb_ending(readings.repeaters),
                              counted(readings.repeats, "repeated read"));
  judge.add(std::move(found));
}

}  // namespace

void judge_repeated_epochs(DataJudge& judge) {
  std::map<int64_t, RankSet> proven;
  RankSet possible;
  for (size_t i = 0; i < judge.facts.size(); ++i) {
    if (judge.facts[i].repeated_epoch) proven[*judge.facts[i].repeated_epoch].insert(judge.about.rank_at(i));
    if (judge.facts[i].repeats_last_call) possible.insert(judge.about.rank_at(i));
  }
  const int64_t now = judge.facts[0].epoch.value_or(0);
  for (const auto& [epoch, ranks] : proven) {
    Finding found = judge.finding(Severity::fault, Verdict::duplicate_data, FindingKind::epoch, ranks);
    found.message = fmt::format(
        "in epoch {} {} read{} in the order of epoch {}: call set_epoch({}) on the loader's sampler before the epoch "
        "begins{}",
        now, ranks.words(), verb_ending(ranks), epoch, now, spelling::kSamplerCopy.text());
    judge.add(std::move(found));
  }
  if (possible.empty()) return;
  Finding found = judge.finding(Severity::note, Verdict::ok, FindingKind::epoch, possible);
  found.message = fmt::format(
      "{} read{} in the same order as in the last call. If this is another epoch, set_epoch was not called ({} "
      "checks it)",
      possible.words(), verb_ending(possible), option_text("epoch", "K"));
  judge.add(std::move(found));
}

void judge_division(DataJudge& judge) {
  judge_sizes(judge);
  judge_epochs(judge);
  judge_undivided(judge);
}

void judge_shared_samples(DataJudge& judge) {
  if (!judge_same_order(judge) && !judge.shares.padded) judge_common_samples(judge);
  if (judge.shares.with_replacement) judge_repeats(judge);
}

}  // namespace lockstep::inspect
