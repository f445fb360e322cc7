// Gradients that are, or have in them, what they were in the step before.
#include <fmt/format.h>

#include <algorithm>

#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/grads/gathered_parameters.h"

namespace lockstep::inspect {
namespace {

// Steps after which a gradient that never changes is worth a word although all ranks agree.
constexpr int64_t kNeverChanges = 10;

}  // namespace

RankSet GradsFindings::added_to_used() {
  if (!compares_before()) return {};
  Gathered gathered;
  RankSet all;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<bool> added;
    for (const RankFacts& rank : facts_) added.push_back(rank.parameters[p].on_used);
    if (const RankSet ranks = ranks_where(added); !ranks.empty()) {
      gathered.add(ranks, p);
      all = all | ranks;
    }
  }
  for (const auto& [list, parameters] : gathered.by_ranks) {
    const RankSet ranks(list), others = ranks_ - ranks;
    // The same everywhere is as it would be on one rank: a loop of two optimizers may clear a gradient later.
    Finding found = others.empty() ? finding(Severity::note, "stale", "gradient", ranks)
                                   : finding(Severity::fault, "mismatch", "gradient", ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "backward on {} added to gradients that an optimizer had used already ({}): no zero_grad() there since that "
        "step{}",
        ranks.words(), in_how_many(parameters.size()), others.empty() ? "" : fmt::format(", as on {}", others.words()));
    findings_.push_back(std::move(found));
  }
  return all;
}

void GradsFindings::stale() {
  if (!compares_before()) return;
  micro_batches();
  const auto changes = [&](const ParameterFacts& each) {
    return each.before.present && !each.before.zero() && each.same_for == 0;
  };
  // Of whole ranks.
  std::vector<bool> stale_ranks, late;
  int64_t most_steps = 0, for_steps = 0;
  for (const RankFacts& rank : facts_) most_steps = std::max(most_steps, rank.steps);
  for (const RankFacts& rank : facts_) {
    int64_t least = 0;
    bool any = false, all = true;
    for (const ParameterFacts& each : rank.parameters) {
      if (!each.before.present || each.before.zero()) continue;
      least = any ? std::min(least, each.same_for) : each.same_for;
      any = true;
      if (changes(each)) all = false;
    }
    stale_ranks.push_back(any && all);
    if (any && all) for_steps = std::max(for_steps, least);
    late.push_back(!wrapper_.there && rank.steps < most_steps);
  }
  if (const RankSet ranks = ranks_where(late); !ranks.empty()) {
    Finding found = finding(Severity::note, "stale", "gradient", ranks);
    found.message = fmt::format(
        "{} ran backward in fewer steps than {} since the watch began: what {} to the reduction is "
        "the gradient of an earlier one",
        ranks.words(), (ranks_ - ranks).words(), ranks.size() == 1 ? "it brings" : "they bring");
    findings_.push_back(std::move(found));
  }
  const auto times = [](int64_t steps) { return steps > 1 ? fmt::format(" for {} steps now", steps) : std::string(); };
  const RankSet ranks = ranks_where(stale_ranks);
  if (!ranks.empty()) {
    Finding found = finding(Severity::note, "stale", "gradient", ranks);
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (parameters_[p].parameter.requires_grad()) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "backward left the very gradients of the step before on {}{}: the same batch again, or a loss that does not "
        "depend on it?",
        ranks.words(), times(for_steps));
    findings_.push_back(std::move(found));
  }
  if (ranks == ranks_) return;
  Gathered gathered;
  int64_t longest = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<bool> stale;
    int64_t least = INT64_MAX;
    bool anywhere = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const ParameterFacts& each = facts_[r].parameters[p];
      const bool here = each.before.present && !each.before.zero() && each.same_for > 0;
      anywhere |= here;
      least = std::min(least, here ? each.same_for : 0);
      stale.push_back(here && !ranks.contains(ranks_.ranks()[r]));
    }
    const RankSet where = ranks_where(stale);
    if (!anywhere || where.empty()) continue;
    // All alike: a bias behind a plain sum has the same gradient in each step.
    if (where == ranks_ - ranks && least < kNeverChanges) continue;
    gathered.add(where, p);
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (stale[r]) longest = std::max(longest, facts_[r].parameters[p].same_for);
  }
  for (const auto& [list, parameters] : gathered.by_ranks) {
    const RankSet where(list);
    Finding found = finding(Severity::note, "stale", "gradient", where);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "{} on {} {} what it was in the step before{}",
        parameters.size() == 1 ? "the gradient of " + found.tensors[0].name : in_how_many(parameters.size()),
        where.words(), parameters.size() == 1 ? "is" : "are", times(longest));
    findings_.push_back(std::move(found));
  }
}

}  // namespace lockstep::inspect
