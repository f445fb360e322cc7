// Finds why gradients differ after the reduction: not reduced, reduced over a sub-group, or multiples of one another.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "inspectors/grads/findings.h"
#include "inspectors/subject/difference_findings.h"

namespace lockstep::inspect {
namespace {

/// Returns the gradient of rank index `rank` divided by that of rank index `source`; 0 if it is no multiple of it.
double factor_of(const ItemDifference& item, size_t rank, size_t source) {
  if (!item.complete || item.norm[source] == 0 || item.not_finite[rank] + item.not_finite[source] > 0) return 0;
  const double factor = item.norm[rank] / item.norm[source], distance = std::sqrt(item.difference[rank].squares);
  // Parallel vectors of these lengths have this distance, and no others.
  for (const double signed_factor : {factor, -factor}) {
    const double parallel = std::abs(signed_factor - 1) * item.norm[source];
    if (std::abs(distance - parallel) <= 1e-3 * parallel) return signed_factor;
  }
  return 0;
}

}  // namespace

void GradsFindings::scope() {
  if (!wrapper_.present || !compares_before() || wrapper_.last_was_local) return;
  std::vector<bool> unwanted;
  for (const RankFacts& each : facts_) unwanted.push_back(each.watched && each.steps > 0 && !each.sync_wanted);
  const RankSet ranks = ranks_where(unwanted);
  if (ranks.empty()) return;
  Finding found = finding(Severity::fault, Verdict::mismatch, FindingKind::reduction, ranks);
  found.message = fmt::format(
      "reduced although the last backward ran under no_sync() on {}: forward decides whether gradients are reduced, so "
      "run forward under no_sync(), too",
      ranks.words());
  findings_.push_back(std::move(found));
}

std::string GradsFindings::cause(const Subject& compared, const std::vector<const ItemDifference*>& items) const {
  if (compares_before()) {
    std::vector<bool> unchanged(ranks_.size(), true);
    for (const ItemDifference* item : items) {
      const std::string& name = compared.items[item->item].name;
      const auto owner = std::find_if(parameters_.begin(), parameters_.end(),
                                      [&](const GradientOwner& each) { return each.name == name; });
      if (owner == parameters_.end()) continue;  // indices of a sparse gradient
      const auto p = static_cast<size_t>(owner - parameters_.begin());
      for (size_t r = 0; r < ranks_.size(); ++r)
        if (!of(r, p, true).present || of(r, p, true).mark.hash != of(r, p, false).mark.hash) unchanged[r] = false;
    }
    const RankSet unreduced = ranks_where(unchanged);
    const std::string scope = wrapper_.last_was_local ? "; the last forward ran under no_sync()" : "";
    if (unreduced == ranks_) return "not reduced: every rank has the gradients of its own backward" + scope;
    if (!unreduced.empty()) return "not reduced on " + unreduced.words() + scope;
  }
  if (wrapper_.last_was_local) return "the last forward ran under no_sync(), so they are not reduced yet";

  const SubGroups groups = sub_groups(compared, items);
  if (groups == SubGroups::kProven)
    return "reduced over a sub-group: each class has the gradients of its own ranks only";
  if (std::string text = multiples(compared, items); !text.empty()) return text;
  return groups == SubGroups::kLikely ? "reduced over a sub-group?" : "";
}

GradsFindings::SubGroups GradsFindings::sub_groups(const Subject& compared,
                                                   const std::vector<const ItemDifference*>& items) const {
  const std::vector<RankSet> classes = classes_of(items, ranks_);
  if (std::ranges::count_if(classes, [](const RankSet& each) { return each.size() > 1; }) < 2) return SubGroups::kNone;
  if (!compares_before()) return SubGroups::kLikely;
  // It is proven if the gradients of each class are a multiple of the sum over its ranks before the reduction. A single
  // number is always a multiple of another, so some gradient has to have more elements.
  bool has_several_elements = false;
  for (const ItemDifference* item : items) {
    const auto owner = std::ranges::find(parameters_, compared.items[item->item].name, &GradientOwner::name);
    if (owner == parameters_.end()) return SubGroups::kLikely;
    const auto p = static_cast<size_t>(owner - parameters_.begin());
    has_several_elements = has_several_elements || owner->parameter.numel() > 1;
    for (const RankSet& each : classes) {
      Sketch sum{}, now{};
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (!each.contains(ranks_.ranks()[r])) continue;
        now = of(r, p, false).sketch;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += of(r, p, true).sketch[i];
      }
      double squares = 0, along = 0, apart = 0, length = 0;
      for (size_t i = 0; i < sum.size(); ++i) squares += sum[i] * sum[i], along += sum[i] * now[i];
      for (size_t i = 0; i < sum.size() && squares > 0; ++i) {
        apart += std::pow(now[i] - along / squares * sum[i], 2);
        length += now[i] * now[i];
      }
      if (apart > 1e-4 * length) return SubGroups::kLikely;
    }
  }
  return has_several_elements ? SubGroups::kProven : SubGroups::kLikely;
}

std::string GradsFindings::multiples(const Subject& compared, const std::vector<const ItemDifference*>& items) const {
  // A single number is always a multiple of another.
  if (std::ranges::none_of(items,
                           [&](const ItemDifference* each) { return compared.items[each->item].tensor.numel() > 1; }))
    return "";
  const auto& list = ranks_.ranks();
  const int source_rank = items.front()->source;
  const auto source = static_cast<size_t>(std::find(list.begin(), list.end(), source_rank) - list.begin());
  // It has, by rank index, the factor that all items have; 0 without one.
  std::vector<double> factors(ranks_.size(), 0);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (r == source || !items.front()->faulty.contains(list[r])) continue;
    for (const ItemDifference* item : items) {
      if (item->difference.size() != ranks_.size() || item->source != source_rank) return "";
      const double each = factor_of(*item, r, source);
      const bool same = item == items.front() || is_near(each, factors[r], 1e-3);
      factors[r] = each == 0 || each == 1 || !same ? 0 : each;
      if (factors[r] == 0) break;
    }
  }
  std::vector<std::pair<double, RankSet>> groups;
  RankSet others;  // that differ and are no multiple
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (r == source || !items.front()->faulty.contains(list[r])) continue;
    if (factors[r] == 0) {
      others.insert(list[r]);
      continue;
    }
    auto group = std::ranges::find_if(groups, [&](const auto& each) { return is_near(factors[r], each.first, 1e-4); });
    if (group == groups.end()) group = groups.insert(groups.end(), {factors[r], RankSet{}});
    group->second.insert(list[r]);
  }
  if (groups.empty()) return "";
  const auto n = static_cast<double>(ranks_.size());
  const bool majority = !items.front()->reference.empty();
  const std::string whose = majority ? "the others'" : fmt::format("rank {}'s", source_rank);
  const auto multiple = [&](double factor) {
    if (is_near(factor, n, 1e-4)) return fmt::format("exactly {} times", ranks_.size());
    if (is_near(factor, 1 / n, 1e-4)) return fmt::format("exactly 1/{} of", ranks_.size());
    return fmt::format("{:.4g} times", factor);
  };
  if (groups.size() == 1 && others.empty()) {
    const double factor = groups[0].first;
    const std::string text = fmt::format("{} {}", multiple(factor), whose);
    if (is_near(factor, n, 1e-4)) return text + ": summed and not averaged?";
    if (is_near(factor, 1 / n, 1e-4))
      return text + (ranks_.size() == 2 ? ": averaged twice, or the other not averaged?" : ": averaged twice?");
    return text + " in every element: another loss scale, or clipped on some ranks only?";
  }
  std::string text;
  for (const auto& [factor, ranks] : groups)
    text += fmt::format("{}{} {} on {}", text.empty() ? "" : ", ", multiple(factor), text.empty() ? whose : "that",
                        ranks.words());
  return text + " in every element: different divisors or loss scales?";
}

void GradsFindings::differences(const Subject& compared, const std::vector<ItemDifference>& items) {
  const bool used = stepped();
  for (Finding& found : difference_findings(about_, compared, items)) {
    std::vector<const ItemDifference*> of_finding;
    for (const ItemDifference& each : items) {
      const std::string& name = compared.items[each.item].name;
      if (each.faulty == found.ranks && std::any_of(found.tensors.begin(), found.tensors.end(),
                                                    [&](const FindingTensor& tensor) { return tensor.name == name; }))
        of_finding.push_back(&each);
    }
    if (is_fault(found)) {
      if (const std::string why = cause(compared, of_finding); !why.empty()) found.message += "; " + why;
      if (wrapper_.last_was_local && !used) found.severity = Severity::note;  // accumulation is in progress
      if (used) found.message += "; an optimizer has stepped with them";
    }
    findings_.push_back(std::move(found));
  }
}

}  // namespace lockstep::inspect
