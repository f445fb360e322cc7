// What the reduction made of the ranks' own gradients: the mean, a sum, nothing at all; and why what came out differs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "inspectors/grads_findings.h"
#include "inspectors/text.h"
#include "inspectors/verify_findings.h"

namespace lockstep::inspect {
namespace {

double length(const Sketch& sketch) {
  double squares = 0;
  for (const double each : sketch) squares += each * each;
  return std::sqrt(squares);
}

/// 1, or the factor by which `after` is `before` in every element; 0 where it is no multiple of it.
double factor_of(const ItemDifference& item, size_t place, size_t source) {
  const Difference& difference = item.difference[place];
  if (!item.complete || item.norm[source] == 0 || item.not_finite[place] + item.not_finite[source] > 0) return 0;
  const double factor = item.norm[place] / item.norm[source];
  const double wanted = std::abs(factor - 1) * item.norm[source];
  const bool parallel = std::abs(std::sqrt(difference.squares) - wanted) <= 1e-3 * wanted;
  return parallel ? factor : 0;
}

bool near(double value, double wanted, double tolerance) { return std::abs(value / wanted - 1) <= tolerance; }

}  // namespace

void GradsFindings::scale() {
  if (wrapper_.last_was_local || wrapper_.uneven || ranks_.size() < 2) return;
  if (!compares_before()) {
    remark_ += "; that they are the mean of the ranks' own is checked where inspect::watch_grads is on before backward";
    return;
  }
  const auto n = static_cast<double>(ranks_.size());
  std::vector<size_t> summed, averaged_twice;
  size_t judged = 0, averaged = 0;
  double factors = 0;
  bool mean = true;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const GradFacts& now = of(0, p, false);
    bool comparable = now.present && now.mark.nan_count + now.mark.inf_count == 0;
    Sketch expected{};
    double magnitude = 0;
    for (size_t r = 0; r < ranks_.size() && comparable; ++r) {
      const GradFacts& before = of(r, p, true);
      comparable = of(r, p, false).present && of(r, p, false).mark.hash == now.mark.hash &&
                   before.mark.nan_count + before.mark.inf_count == 0;
      if (!before.present) continue;  // left out by this rank: it brought zeros
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += before.sketch[i] / n;
      magnitude += length(before.sketch) / n;
    }
    const double expected_length = length(expected), now_length = length(now.sketch);
    // Where the ranks' own all but cancel one another, the sum is rounding.
    if (!comparable || now_length == 0 || expected_length == 0 || expected_length < 1e-3 * magnitude) continue;
    double along = 0, apart = 0;
    for (size_t i = 0; i < expected.size(); ++i) along += now.sketch[i] * expected[i];
    const double factor = along / (expected_length * expected_length);
    for (size_t i = 0; i < expected.size(); ++i) apart += std::pow(now.sketch[i] - factor * expected[i], 2);
    const double residual = std::sqrt(apart) / now_length;
    if (residual > 0.02) {  // compressed beyond recognition, clipped element by element, changed by a hook
      mean = false;
      continue;
    }
    // As exact as rounding lets it be: a gradient that was clipped to nearly that size is no fault.
    const double tolerance = 2e-6 + 2 * residual;
    ++judged;
    factors += factor;
    if (near(factor, 1, std::max(tolerance, 1e-4)))
      ++averaged;
    else
      mean = false;
    if (near(factor, n, tolerance)) summed.push_back(p);
    if (near(factor, 1 / n, tolerance)) averaged_twice.push_back(p);
  }
  const auto tell = [&](const std::vector<size_t>& parameters, Severity severity, const std::string& text) {
    Finding found = finding(severity, "mismatch", "reduction", ranks_);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message =
        fmt::format("{} {} {}", in_how_many(parameters.size()), parameters.size() == 1 ? "is" : "are", text);
    findings_.push_back(std::move(found));
  };
  // A wrapper promises the mean. In a loop by hand a sum of all gradients is right where the loss is divided by the batch of all
  // ranks, and no gradient shows by what it was divided: it is told, and not judged.
  const bool promised = wrapper_.there || subject_.averages_in_a_loop;
  if (!summed.empty() && (promised || averaged > 0))
    tell(summed, promised ? Severity::fault : Severity::note,
         fmt::format(
             "exactly {} times the mean of the ranks' own: summed and not averaged{}", ranks_.size(),
             promised ? "" : fmt::format(", while {} the mean", averaged == 1 ? "another one is" : "others are")));
  else if (!summed.empty())
    remark_ += fmt::format(
        "; {}exactly {} times the mean of the ranks' own: their sum, which is right where the loss is divided by the "
        "batch of all ranks",
        summed.size() == judged ? "" : in_how_many(summed.size()) + " ", ranks_.size());
  if (!averaged_twice.empty())
    tell(averaged_twice, Severity::fault,
         fmt::format("exactly 1/{} of the mean of the ranks' own: averaged twice", ranks_.size()));
  if (!summed.empty() || !averaged_twice.empty() || judged == 0) return;
  if (mean)
    remark_ += "; the mean of the ranks' own";
  else
    remark_ += fmt::format("; {:.3g} times the mean of the ranks' own (clipped or scaled)",
                           factors / static_cast<double>(judged));
}

void GradsFindings::scope() {
  if (!wrapper_.there || !compares_before() || wrapper_.last_was_local) return;
  std::vector<bool> unwanted;
  for (const RankFacts& each : facts_) unwanted.push_back(each.watched && each.steps > 0 && !each.sync_wanted);
  const RankSet ranks = ranks_where(unwanted);
  if (ranks.empty()) return;
  Finding found = finding(Severity::fault, "mismatch", "reduction", ranks);
  found.message = fmt::format(
      "reduced although the last backward ran within no_sync() on {}: what counts is where forward runs, so it belongs "
      "within the scope, too",
      ranks.words());
  findings_.push_back(std::move(found));
}

std::string GradsFindings::cause(const Subject& compared, const std::vector<const ItemDifference*>& items) const {
  const auto& list = ranks_.ranks();
  if (compares_before()) {
    std::vector<bool> own(ranks_.size(), true);
    for (const ItemDifference* item : items) {
      const std::string& name = compared.items[item->item].name;
      const auto owner = std::find_if(parameters_.begin(), parameters_.end(),
                                      [&](const GradientOwner& each) { return each.name == name; });
      if (owner == parameters_.end()) continue;  // places of a sparse gradient
      const auto p = static_cast<size_t>(owner - parameters_.begin());
      for (size_t r = 0; r < ranks_.size(); ++r)
        if (!of(r, p, true).present || of(r, p, true).mark.hash != of(r, p, false).mark.hash) own[r] = false;
    }
    const RankSet unreduced = ranks_where(own);
    const std::string scope = wrapper_.last_was_local ? "; the last forward ran under no_sync()" : "";
    if (unreduced == ranks_) return "not reduced: on every rank they are what its own backward left" + scope;
    if (!unreduced.empty()) return "not reduced on " + unreduced.words() + scope;
  }
  if (wrapper_.last_was_local) return "the last forward ran under no_sync(), so they are not reduced yet";

  double factor = 0;
  bool constant = true;
  size_t compared_with = 0;
  for (const ItemDifference* item : items) {
    if (item->difference.size() != ranks_.size()) return "";
    const auto source = static_cast<size_t>(std::find(list.begin(), list.end(), item->source) - list.begin());
    compared_with = source;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (r == source || !item->faulty.contains(list[r])) continue;
      const double each = factor_of(*item, r, source);
      if (each == 0 || each == 1 || (factor != 0 && !near(each, factor, 1e-3))) constant = false;
      factor = each;
    }
  }
  if (!constant || factor == 0) return "";
  const auto n = static_cast<double>(ranks_.size());
  const std::string whose = ranks_.size() == 2 ? fmt::format("rank {}'s", list[compared_with]) : "the others'";
  if (near(factor, n, 1e-4)) return fmt::format("exactly {} times {}: summed and not averaged?", ranks_.size(), whose);
  if (near(factor, 1 / n, 1e-4))
    return fmt::format("exactly 1/{} of {}: {}", ranks_.size(), whose,
                       ranks_.size() == 2 ? "averaged twice, or the other one not averaged?" : "averaged twice?");
  return fmt::format("{:.4g} times {} in every element: another loss scale, or clipped on some ranks only?", factor,
                     whose);
}

void GradsFindings::differences(const Subject& compared, const std::vector<ItemDifference>& items) {
  VerifyOptions options;
  options.detail_bytes(options_.detail_bytes());
  VerifyFindings told(compared, ranks_, options);
  told.differences(compared, items);
  const bool used = stepped();
  for (Finding& found : told.take({})) {
    if (found.verdict == "ok") continue;
    std::vector<const ItemDifference*> of_finding;
    for (const ItemDifference& each : items) {
      const std::string& name = compared.items[each.item].name;
      if (each.faulty == found.ranks && std::any_of(found.tensors.begin(), found.tensors.end(),
                                                    [&](const FindingTensor& tensor) { return tensor.name == name; }))
        of_finding.push_back(&each);
    }
    if (found.severity == Severity::fault) {
      if (const std::string why = cause(compared, of_finding); !why.empty()) found.message += "; " + why;
      if (wrapper_.last_was_local && !used) found.severity = Severity::note;  // an accumulation that goes on
      if (used) found.message += "; an optimizer has stepped with them";
    }
    std::vector<Finding> one;
    one.push_back(std::move(found));
    add(std::move(one));
  }
}

}  // namespace lockstep::inspect
