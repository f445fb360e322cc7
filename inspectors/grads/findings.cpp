#include "inspectors/grads/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "collectives/log/collective_op.h"
#include "collectives/watch/spelling.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {

GradsFindings::GradsFindings(const About& about, const GradientSubject& subject, const GradsOptions& options,
                             const WrapperFacts& wrapper, std::vector<GradientOwner> parameters,
                             std::vector<RankFacts> facts)
    : about_(about),
      subject_(subject),
      options_(options),
      ranks_(about.ranks),
      wrapper_(wrapper),
      parameters_(std::move(parameters)),
      facts_(std::move(facts)) {}

const GradFacts& GradsFindings::of(size_t rank, size_t parameter, bool before) const {
  const ParameterFacts& facts = facts_[rank].parameters[parameter];
  return before ? facts.before : facts.now;
}

bool GradsFindings::all_watched() const {
  return !facts_.empty() &&
         std::all_of(facts_.begin(), facts_.end(), [](const RankFacts& each) { return each.watched; });
}

bool GradsFindings::compares_before() const {
  return all_watched() &&
         std::any_of(facts_.begin(), facts_.end(), [](const RankFacts& each) { return each.steps > 0; });
}

bool GradsFindings::stepped() const {
  for (const RankFacts& rank : facts_)
    for (const ParameterFacts& each : rank.parameters)
      if (each.stepped) return true;
  return false;
}

bool GradsFindings::changed() const {
  for (const RankFacts& rank : facts_)
    for (const ParameterFacts& each : rank.parameters)
      if (each.changed) return true;
  return false;
}

Finding GradsFindings::finding(Severity severity, Verdict verdict, FindingKind kind, const RankSet& ranks) const {
  Finding found = about_.finding(severity, verdict, kind);
  found.ranks = ranks;
  if (!(ranks == ranks_)) found.reference_ranks = ranks_ - ranks;
  return found;
}

FindingTensor GradsFindings::tensor(size_t parameter) const {
  const GradientOwner& owner = parameters_[parameter];
  return {.name = owner.name.empty() ? about_.object : owner.name,
          .dtype = dist::dtype_name(static_cast<uint8_t>(owner.parameter.scalar_type())),
          .shape = owner.parameter.sizes().vec()};
}

RankSet GradsFindings::ranks_where(const std::vector<bool>& by_rank_index) const {
  RankSet result;
  for (size_t i = 0; i < by_rank_index.size(); ++i)
    if (by_rank_index[i]) result.insert(ranks_.ranks()[i]);
  return result;
}

std::string GradsFindings::how_many(size_t count, const char* what) const {
  const auto total = static_cast<size_t>(std::count_if(
      parameters_.begin(), parameters_.end(), [](const auto& each) { return each.parameter.requires_grad(); }));
  if (total == 1) return fmt::format("its {}", what);
  return count == total ? fmt::format("all {} {}s", total, what) : fmt::format("{} of {} {}s", count, total, what);
}

std::string GradsFindings::in_how_many(size_t count) const { return how_many(count, "gradient"); }

double GradsFindings::total_norm(size_t rank, bool before) const {
  double squares = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const GradFacts& facts = of(rank, p, before);
    if (facts.present) squares += facts.mark.norm * facts.mark.norm;
  }
  return std::sqrt(squares);
}

void GradsFindings::add(std::vector<Finding> findings) {
  for (Finding& each : findings) {
    each.inspector = about_.inspector;
    each.object = about_.object;
    each.step = about_.step;
    findings_.push_back(std::move(each));
  }
}

void GradsFindings::reduced() {
  scope();
  if (none_at_all(false)) return;
  presence(false);
  not_finite(false);
  added_to_used();
  if (!zero_everywhere(false)) scale();
  stale();
  if (!compares_before()) return;
  if (std::ranges::none_of(findings_, is_fault)) same_batch(/*before=*/true);
  unchecked_.emplace_back("what the losses are divided by");
}

bool GradsFindings::same_batch(bool before) {
  std::map<std::vector<Hash>, RankSet> by_gradients;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (total_norm(r, before) == 0) continue;
    std::vector<Hash> hashes;
    for (size_t p = 0; p < parameters_.size(); ++p)
      hashes.push_back(of(r, p, before).present ? of(r, p, before).mark.hash : Hash{});
    by_gradients[hashes].insert(ranks_.ranks()[r]);
  }
  for (const auto& [hashes, ranks] : by_gradients) {
    if (ranks.size() < 2) continue;
    if (before || (wrapper_.present && wrapper_.last_was_local)) {
      Finding found = finding(Severity::note, Verdict::duplicate_data, FindingKind::gradient, ranks);
      found.reference_ranks = {};
      found.message =
          fmt::format("equal bit by bit on {} before the reduction: did they read the same batch?", ranks.words());
      findings_.push_back(std::move(found));
    } else {
      remark_ += fmt::format("; equal bit by bit{}: already reduced, or from the same batch ({} can tell which)",
                             ranks == ranks_ ? "" : " on " + ranks.words(), inspect_name("watch_grads"));
    }
  }
  return std::ranges::any_of(by_gradients, [&](const auto& each) { return each.second == ranks_; });
}

void GradsFindings::local() {
  const bool before = compares_before();
  if (none_at_all(before)) return;
  presence(before);
  not_finite(before);
  const RankSet added = added_to_used();
  if (zero_everywhere(before)) return;
  unchecked_.emplace_back("the result of the reduction");
  if (ranks_.size() > 1 && same_batch(before)) return;
  zeros();
  // Gradients that backward added to are larger for this reason.
  if (added.empty() || added == ranks_) outliers();
}

std::vector<Finding> GradsFindings::take(const Report& report) {
  if (findings_.empty()) {
    const bool before = options_.local() && compares_before();
    Finding found = finding(Severity::note, Verdict::ok, FindingKind::gradient, ranks_);
    std::string norm;
    if (!facts_.empty()) {
      double least = INFINITY, most = 0;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        least = std::min(least, total_norm(r, before));
        most = std::max(most, total_norm(r, before));
      }
      norm = least == most ? fmt::format(", norm {:.4g}", most) : fmt::format(", norms {:.4g} to {:.4g}", least, most);
    }
    const auto frozen = std::ranges::count_if(
        subject_.parameters, [](const GradientOwner& each) { return !each.parameter.requires_grad(); });
    if (frozen > 0) unchecked_.push_back(counted(frozen, "frozen parameter"));
    if (!unchecked_.empty()) remark_ += fmt::format("; not checked: {}", fmt::join(unchecked_, ", "));
    found.message = fmt::format("{} on {}: {}, {}{}, {:.1f} ms{}",
                                options_.local() ? "gradients before the reduction are finite and of similar size"
                                                 : "gradients are equal and finite",
                                ranks_.words(), counted(report.tensors, "tensor"), bytes_text(report.bytes), norm,
                                report.seconds * 1e3, remark_);
    findings_.push_back(std::move(found));
  }
  return std::move(findings_);
}

}  // namespace lockstep::inspect
