// Finds gradients that are the same as in the step before, or that contain those of the step before.
#include <fmt/format.h>

#include <algorithm>

#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/grads/parameters_by_ranks.h"

namespace lockstep::inspect {
namespace {

// After so many steps a gradient that never changes is reported although all ranks agree.
constexpr int64_t kNeverChanges = 10;

}  // namespace

RankSet GradsFindings::added_to_used() {
  if (!compares_before()) return {};
  ParametersByRanks found_on;
  RankSet all;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<bool> added;
    for (const RankFacts& rank : facts_) added.push_back(rank.parameters[p].on_used);
    if (const RankSet ranks = ranks_where(added); !ranks.empty()) {
      found_on.add(ranks, p);
      all = all | ranks;
    }
  }
  for (const auto& [list, parameters] : found_on.by_ranks) {
    const RankSet ranks(list), others = ranks_ - ranks;
    // On all ranks it can be intended: a loop with two optimizers may clear gradients later.
    Finding found = others.empty() ? finding(Severity::note, Verdict::stale, FindingKind::gradient, ranks)
                                   : finding(Severity::fault, Verdict::mismatch, FindingKind::gradient, ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "backward on {} added to gradients that an optimizer had already used ({}): no zero_grad() since that step{}",
        ranks.words(), in_how_many(parameters.size()),
        others.empty() ? "" : fmt::format(", unlike on {}", others.words()));
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
  // These ranks' gradients are all the same as before, or they have run fewer steps.
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
    late.push_back(!wrapper_.present && rank.steps < most_steps);
  }
  if (const RankSet ranks = ranks_where(late); !ranks.empty()) {
    Finding found = finding(Severity::note, Verdict::stale, FindingKind::gradient, ranks);
    found.message = fmt::format(
        "{} ran backward in fewer steps than {} since the watch began: {} the gradient of an earlier step to the "
        "reduction",
        ranks.words(), (ranks_ - ranks).words(), ranks.size() == 1 ? "it contributes" : "they contribute");
    findings_.push_back(std::move(found));
  }
  const auto times = [](int64_t steps) { return steps > 1 ? fmt::format(" for {} steps now", steps) : std::string(); };
  const RankSet ranks = ranks_where(stale_ranks);
  if (!ranks.empty()) {
    Finding found = finding(Severity::note, Verdict::stale, FindingKind::gradient, ranks);
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (parameters_[p].parameter.requires_grad()) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "backward gave the same gradients as in the step before on {}{}: the same batch again, or a loss that does not "
        "depend on it?",
        ranks.words(), times(for_steps));
    findings_.push_back(std::move(found));
  }
  if (ranks == ranks_) return;
  ParametersByRanks unchanged;
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
    // On all ranks it can be right: a bias before a plain sum has the same gradient in each step.
    if (where == ranks_ - ranks && least < kNeverChanges) continue;
    unchanged.add(where, p);
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (stale[r]) longest = std::max(longest, facts_[r].parameters[p].same_for);
  }
  for (const auto& [list, parameters] : unchanged.by_ranks) {
    const RankSet where(list);
    Finding found = finding(Severity::note, Verdict::stale, FindingKind::gradient, where);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "{} on {} {} the same as in the step before{}",
        parameters.size() == 1 ? "the gradient of " + found.tensors[0].name : in_how_many(parameters.size()),
        where.words(), parameters.size() == 1 ? "is" : "are", times(longest));
    findings_.push_back(std::move(found));
  }
}

}  // namespace lockstep::inspect
