// Judges whether each reduced gradient is the mean over ranks, or which multiple of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/watch/spelling.h"
#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "protocol/text.h"

namespace lockstep::inspect {
namespace {

// A sketch has so many elements.
constexpr int64_t kSketched = 512;

double length(const Sketch& sketch) {
  double squares = 0;
  for (const double each : sketch) squares += each * each;
  return std::sqrt(squares);
}

/// Has gradients that are the same multiple of the mean.
struct FactorGroup {
  double factor = 0;
  double tolerance = 0;
  std::vector<size_t> parameters;
};

/// Returns the bound that clip_grad_norm_ was called with, if it explains gradients of norm `now` that are `factor`
/// times the mean: a number with one or two digits, as programs have it. 0 if it does not.
double clipped_to(double now, double factor) {
  if (!(factor < 1) || !(now > 0)) return 0;
  const double before = now / factor;
  const double bound = now * (before + 1e-6) / before;  // as clip_grad_norm_ divides
  const double unit = std::pow(10, std::floor(std::log10(bound)) - 1);
  const double rounded = std::round(bound / unit) * unit;
  return is_near(bound, rounded, 5e-5) ? rounded : 0;
}

}  // namespace

/// Returns nothing if the gradient can't be compared with the mean.
std::optional<GradsFindings::Factor> GradsFindings::factor_of_mean(size_t p) const {
  const GradFacts& now = of(0, p, false);
  if (!now.present || now.mark.nan_count + now.mark.inf_count > 0) return std::nullopt;
  const auto n = static_cast<double>(ranks_.size());
  Sketch mean{};
  double magnitude = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const GradFacts& before = of(r, p, true);
    if (!of(r, p, false).present || of(r, p, false).mark.hash != now.mark.hash ||
        before.mark.nan_count + before.mark.inf_count > 0)
      return std::nullopt;
    if (!before.present) continue;  // a rank that leaves the parameter out contributes zeros
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += before.sketch[i] / n;
    magnitude += length(before.sketch) / n;
  }
  const double mean_length = length(mean), now_length = length(now.sketch);
  // If the gradients of the ranks almost cancel one another, their sum is rounding noise.
  if (mean_length == 0 || mean_length < 1e-3 * magnitude) return std::nullopt;
  if (now.zero()) return stepped() ? std::nullopt : std::optional(Factor{.value = 0, .tolerance = 0});
  if (now_length == 0) return std::nullopt;
  double product = 0, squares = 0;
  for (size_t i = 0; i < mean.size(); ++i) product += now.sketch[i] * mean[i];
  const double factor = product / (mean_length * mean_length);
  for (size_t i = 0; i < mean.size(); ++i) squares += std::pow(now.sketch[i] - factor * mean[i], 2);
  const double residual = std::sqrt(squares) / now_length;
  // It is strongly compressed, clipped element by element, or changed by a hook.
  if (residual > 0.02) return Factor{.value = factor, .tolerance = residual, .multiple = false};
  // The tolerance is what rounding needs: a gradient that was clipped to almost the mean is no fault.
  return Factor{.value = factor, .tolerance = 2e-6 + 2 * residual};
}

std::string GradsFindings::names_of(const std::vector<size_t>& parameters) const {
  std::vector<std::string> names;
  for (const size_t each : parameters) names.push_back(tensor(each).name);
  return protocol::listed(names, 3);
}

void GradsFindings::scale() {
  if (wrapper_.last_was_local || wrapper_.uneven || ranks_.size() < 2) return;
  if (!compares_before()) {
    unchecked_.push_back(
        fmt::format("the mean over ranks, and whether each has a batch of its own (needs {} before backward)",
                    inspect_name("watch_grads")));
    return;
  }
  // A rank that ran no backward contributed the gradient of an earlier step, which is not known any more.
  if (std::ranges::any_of(facts_, [&](const RankFacts& each) { return each.steps != facts_[0].steps; })) {
    unchecked_.emplace_back("the mean over ranks, since not all ranks ran backward in this step");
    return;
  }
  const auto n = static_cast<double>(ranks_.size());
  std::vector<FactorGroup> groups;
  std::vector<size_t> no_multiple, unjudged;
  size_t judged = 0;
  bool sampled = false, inexact = false;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!of(0, p, false).present) continue;
    const std::optional<Factor> factor = factor_of_mean(p);
    if (!factor || !factor->multiple) {
      (factor ? no_multiple : unjudged).push_back(p);
      continue;
    }
    ++judged;
    inexact = inexact || factor->tolerance > 1e-4;
    sampled = sampled || parameters_[p].parameter.numel() > kSketched;
    const double tolerance = std::max(factor->tolerance, 1e-4);
    auto group = std::ranges::find_if(groups, [&](const FactorGroup& each) {
      return each.factor == factor->value ||
             (each.factor != 0 && is_near(factor->value, each.factor, std::max(tolerance, each.tolerance)));
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {factor->value, factor->tolerance, {}});
    // The group has the factor that is known best.
    if (factor->tolerance < group->tolerance) group->factor = factor->value, group->tolerance = factor->tolerance;
    group->parameters.push_back(p);
  }
  if (!no_multiple.empty() || inexact)
    if (const std::vector<double> factors = factors_of_ranks(); !factors.empty()) return scaled_before(factors);
  // If gradients were changed element by element, small ones can be a multiple of the mean by chance.
  if (!no_multiple.empty()) {
    constexpr int64_t kFew = 16;
    std::erase_if(groups, [&](const FactorGroup& each) {
      const bool chance =
          !is_near(each.factor, 1, std::max(each.tolerance, 1e-4)) &&
          std::ranges::all_of(each.parameters, [&](size_t p) { return parameters_[p].parameter.numel() < kFew; });
      if (chance) no_multiple.insert(no_multiple.end(), each.parameters.begin(), each.parameters.end());
      return chance;
    });
    std::ranges::sort(no_multiple);
    Finding found = finding(Severity::note, Verdict::mismatch, FindingKind::reduction, ranks_);
    found.message = fmt::format(
        "{} {} of the mean over ranks: compressed, or changed element by element, as by clipping to a value; whether "
        "{} right is not checked",
        names_of(no_multiple), no_multiple.size() == 1 ? "is no multiple" : "are no multiples",
        no_multiple.size() == 1 ? "it is" : "they are");
    for (const size_t p : no_multiple) found.tensors.push_back(tensor(p));
    findings_.push_back(std::move(found));
  }
  if (!unjudged.empty() && judged > 0)
    unchecked_.push_back(fmt::format("{}, for which the mean over ranks is almost zero", names_of(unjudged)));
  if (sampled)
    unchecked_.push_back(fmt::format("elements of a tensor beyond the {} that were compared with the mean", kSketched));
  if (groups.empty()) return;

  // The largest group is the base; of equally large ones, the one nearest to the mean.
  std::ranges::stable_sort(groups, [](const FactorGroup& a, const FactorGroup& b) {
    if (a.parameters.size() != b.parameters.size()) return a.parameters.size() > b.parameters.size();
    return std::abs(std::log(std::abs(a.factor) + 1e-300)) < std::abs(std::log(std::abs(b.factor) + 1e-300));
  });
  std::ranges::sort(groups.begin() + 1, groups.end(), {}, [](const FactorGroup& each) { return each.parameters[0]; });
  // A wrapper promises the mean. In a hand-written loop the sum is right if the loss is divided by the batch of all
  // ranks, and gradients do not show what it was divided by: the sum is a note, not a fault.
  const bool promised = wrapper_.present || subject_.averages_in_a_loop;
  const auto is_mean = [](const FactorGroup& each) { return is_near(each.factor, 1, std::max(each.tolerance, 1e-4)); };
  const auto is_sum = [&](const FactorGroup& each) { return is_near(each.factor, n, each.tolerance); };
  const auto is_twice = [&](const FactorGroup& each) { return is_near(each.factor, 1 / n, each.tolerance); };
  const auto is_intended = [&](const FactorGroup& each) {
    return options_.factor() && is_near(each.factor, *options_.factor(), std::max(each.tolerance, 1e-3));
  };
  const auto text_of = [&](const FactorGroup& each) {
    if (is_mean(each)) return std::string("the mean over ranks");
    if (is_sum(each)) return fmt::format("exactly {} times the mean over ranks", ranks_.size());
    if (is_twice(each)) return fmt::format("exactly 1/{} of the mean over ranks", ranks_.size());
    return fmt::format("{:.4g} times the mean over ranks", each.factor);
  };
  const FactorGroup& base = groups.front();
  const double norm = clipped_to(total_norm(0, false), base.factor);
  Finding found = finding(Severity::note, Verdict::mismatch, FindingKind::reduction, ranks_);
  if (groups.size() == 1) {
    const std::string which = base.parameters.size() == 1 && parameters_.size() > 1
                                  ? names_of(base.parameters)
                                  : in_how_many(base.parameters.size());
    const std::string text = fmt::format("{} {} {}", which, base.parameters.size() == 1 ? "is" : "are", text_of(base));
    const bool all = base.parameters.size() == judged && no_multiple.empty();
    const std::string remark = "; " + (all ? text_of(base) : text);
    if (is_intended(base)) {
      remark_ += remark + ", as intended (factor)";
      return;
    }
    if (is_mean(base)) {
      remark_ += remark;
      return;
    }
    if (is_sum(base) && !promised) {
      remark_ += remark + ": their sum, which is right if the loss is divided by the batch of all ranks";
      return;
    }
    if (!is_twice(base) && !is_sum(base) && norm > 0) {
      remark_ += fmt::format("{}: clipped to a norm of {:.2g}", remark, norm);
      return;
    }
    found.message = text;
    if (is_sum(base) || is_twice(base)) {
      found.severity = Severity::fault;
      found.message += is_sum(base) ? ": summed and not averaged" : ": averaged twice";
    } else {
      found.message += fmt::format(
          ": divided by a number other than the number of ranks, or scaled or clipped in a way that grads does not "
          "recognise ({} if this is intended)",
          option_text("factor", fmt::format("{:.4g}", base.factor)));
    }
    for (const size_t p : base.parameters) found.tensors.push_back(tensor(p));
    findings_.push_back(std::move(found));
    return;
  }
  // The base is left out: it is named as the rest.
  for (size_t g = 1; g < groups.size(); ++g) {
    const FactorGroup& each = groups[g];
    if ((is_sum(each) && promised) || is_twice(each)) found.severity = Severity::fault;
    found.message += fmt::format("{}{}: {}", g > 1 ? "; " : "", names_of(each.parameters), text_of(each));
    if (is_sum(each)) found.message += ", summed and not averaged";
    if (is_twice(each)) found.message += ", averaged twice";
    if (base.factor != 0 && !is_mean(base) && is_near(each.factor / base.factor, n, each.tolerance + base.tolerance))
      found.message += ", reduced once more than the others";
    for (const size_t p : each.parameters) found.tensors.push_back(tensor(p));
  }
  // If the rest is wrong, or if it is not known which gradients are, the tensors of the rest are listed, too.
  if (!is_mean(base)) {
    if ((is_sum(base) && promised) || is_twice(base)) found.severity = Severity::fault;
    for (const size_t p : base.parameters)
      if (found.severity == Severity::fault) found.tensors.push_back(tensor(p));
  }
  found.message += fmt::format("; the other {} {} {}", base.parameters.size(),
                               base.parameters.size() == 1 ? "is" : "are", is_mean(base) ? "the mean" : text_of(base));
  if (is_sum(base) && !promised) found.message += " (their sum)";
  if (norm > 0 && !is_twice(base)) found.message += fmt::format(" (clipped to a norm of {:.2g})", norm);
  std::ranges::sort(found.tensors, {}, [&](const FindingTensor& each) {
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (tensor(p).name == each.name) return p;
    return parameters_.size();
  });
  findings_.push_back(std::move(found));
}

}  // namespace lockstep::inspect
