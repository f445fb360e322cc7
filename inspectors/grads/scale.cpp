// What the reduction made of each gradient: the mean of the ranks' own, or how many times that.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"

namespace lockstep::inspect {
namespace {

// Of that many elements a sketch is made.
constexpr int64_t kSketched = 512;

double length(const Sketch& sketch) {
  double squares = 0;
  for (const double each : sketch) squares += each * each;
  return std::sqrt(squares);
}

/// Gradients that are the same multiple of the mean.
struct FactorGroup {
  double factor = 0;
  double tolerance = 0;
  std::vector<size_t> parameters;
};

/// The norm that clip_grad_norm_ was given, where gradients of norm `now` that were `factor` times as large come from
/// that: a number with one or two digits, as people write them. 0 where they do not.
double clipped_to(double now, double factor) {
  if (!(factor < 1) || !(now > 0)) return 0;
  const double before = now / factor;
  const double bound = now * (before + 1e-6) / before;  // as clip_grad_norm_ divides
  const double unit = std::pow(10, std::floor(std::log10(bound)) - 1);
  const double rounded = std::round(bound / unit) * unit;
  return is_near(bound, rounded, 5e-5) ? rounded : 0;
}

}  // namespace

/// How many times the mean of what the ranks had `now` is; nothing where that can't be said.
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
    if (!before.present) continue;  // left out by this rank: it brought zeros
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += before.sketch[i] / n;
    magnitude += length(before.sketch) / n;
  }
  const double mean_length = length(mean), now_length = length(now.sketch);
  // Where the ranks' own all but cancel one another, the sum is rounding.
  if (mean_length == 0 || mean_length < 1e-3 * magnitude) return std::nullopt;
  if (now.zero()) return stepped() ? std::nullopt : std::optional(Factor{.value = 0, .tolerance = 0});
  if (now_length == 0) return std::nullopt;
  double along = 0, apart = 0;
  for (size_t i = 0; i < mean.size(); ++i) along += now.sketch[i] * mean[i];
  const double factor = along / (mean_length * mean_length);
  for (size_t i = 0; i < mean.size(); ++i) apart += std::pow(now.sketch[i] - factor * mean[i], 2);
  const double residual = std::sqrt(apart) / now_length;
  // Compressed beyond recognition, clipped element by element, changed by a hook.
  if (residual > 0.02) return Factor{.value = factor, .tolerance = residual, .multiple = false};
  // As exact as rounding lets it be: a gradient that was clipped to nearly that size is no fault.
  return Factor{.value = factor, .tolerance = 2e-6 + 2 * residual};
}

std::string GradsFindings::names_of(const std::vector<size_t>& parameters) const {
  constexpr size_t kNamed = 3;
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size() && i < kNamed; ++i) names.push_back(tensor(parameters[i]).name);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     parameters.size() > kNamed ? fmt::format(" and {} more", parameters.size() - kNamed) : "");
}

void GradsFindings::scale() {
  if (wrapper_.last_was_local || wrapper_.uneven || ranks_.size() < 2) return;
  if (!compares_before()) {
    unchecked_.emplace_back(
        "that they are the mean of the ranks' own (inspect::watch_grads, on before backward, sees that)");
    return;
  }
  // What such a rank brought is of an earlier step, and not known any more.
  if (std::ranges::any_of(facts_, [&](const RankFacts& each) { return each.steps != facts_[0].steps; })) {
    unchecked_.emplace_back("the mean of the ranks' own, since not all ran backward in this step");
    return;
  }
  const auto n = static_cast<double>(ranks_.size());
  std::vector<FactorGroup> groups;
  std::vector<size_t> unlike, unjudged;
  size_t judged = 0;
  bool sampled = false;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!of(0, p, false).present) continue;
    const std::optional<Factor> factor = factor_of_mean(p);
    if (!factor || !factor->multiple) {
      (factor ? unlike : unjudged).push_back(p);
      continue;
    }
    ++judged;
    sampled = sampled || parameters_[p].parameter.numel() > kSketched;
    const double tolerance = std::max(factor->tolerance, 1e-4);
    auto group = std::ranges::find_if(groups, [&](const FactorGroup& each) {
      return each.factor == factor->value ||
             (each.factor != 0 && is_near(factor->value, each.factor, std::max(tolerance, each.tolerance)));
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {factor->value, factor->tolerance, {}});
    // Rounding is smallest in the one that is furthest from zero to begin with.
    if (factor->tolerance < group->tolerance) group->factor = factor->value, group->tolerance = factor->tolerance;
    group->parameters.push_back(p);
  }
  // Few numbers are a multiple of others by chance: where gradients were changed element by element, that says nothing.
  if (!unlike.empty()) {
    constexpr int64_t kFew = 16;
    std::erase_if(groups, [&](const FactorGroup& each) {
      const bool chance =
          !is_near(each.factor, 1, std::max(each.tolerance, 1e-4)) &&
          std::ranges::all_of(each.parameters, [&](size_t p) { return parameters_[p].parameter.numel() < kFew; });
      if (chance) unlike.insert(unlike.end(), each.parameters.begin(), each.parameters.end());
      return chance;
    });
    std::ranges::sort(unlike);
    unchecked_.push_back(
        fmt::format("{} against the mean of the ranks' own, of which {} no multiple (compressed, or "
                    "changed element by element since)",
                    names_of(unlike), unlike.size() == 1 ? "it is" : "they are"));
  }
  if (!unjudged.empty() && judged > 0)
    unchecked_.push_back(
        fmt::format("{} against the mean of the ranks' own, which is all but zero", names_of(unjudged)));
  if (sampled)
    unchecked_.push_back(
        fmt::format("that what lies between the {} elements of a tensor that were compared with the mean "
                    "is it, too",
                    kSketched));
  if (groups.empty()) return;

  // Against the largest group, of equal ones against that which is nearest to the mean.
  std::ranges::stable_sort(groups, [](const FactorGroup& a, const FactorGroup& b) {
    if (a.parameters.size() != b.parameters.size()) return a.parameters.size() > b.parameters.size();
    return std::abs(std::log(std::abs(a.factor) + 1e-300)) < std::abs(std::log(std::abs(b.factor) + 1e-300));
  });
  std::ranges::sort(groups.begin() + 1, groups.end(), {}, [](const FactorGroup& each) { return each.parameters[0]; });
  // A wrapper promises the mean. In a loop by hand a sum of all gradients is right where the loss is divided by the
  // batch of all ranks, and no gradient shows by what it was divided: it is a note, and no fault.
  const bool promised = wrapper_.there || subject_.averages_in_a_loop;
  const auto is_mean = [](const FactorGroup& each) { return is_near(each.factor, 1, std::max(each.tolerance, 1e-4)); };
  const auto is_sum = [&](const FactorGroup& each) { return is_near(each.factor, n, each.tolerance); };
  const auto is_twice = [&](const FactorGroup& each) { return is_near(each.factor, 1 / n, each.tolerance); };
  const auto is_meant = [&](const FactorGroup& each) {
    return options_.factor() && is_near(each.factor, *options_.factor(), std::max(each.tolerance, 1e-3));
  };
  const auto text_of = [&](const FactorGroup& each) {
    if (is_mean(each)) return std::string("the mean of the ranks' own");
    if (is_sum(each)) return fmt::format("exactly {} times the mean of the ranks' own", ranks_.size());
    if (is_twice(each)) return fmt::format("exactly 1/{} of the mean of the ranks' own", ranks_.size());
    return fmt::format("{:.4g} times the mean of the ranks' own", each.factor);
  };
  const FactorGroup& base = groups.front();
  const double norm = clipped_to(total_norm(0, false), base.factor);
  Finding found = finding(Severity::note, "mismatch", "reduction", ranks_);
  if (groups.size() == 1) {
    const std::string whose = base.parameters.size() == 1 && parameters_.size() > 1
                                  ? names_of(base.parameters)
                                  : in_how_many(base.parameters.size());
    const std::string told = fmt::format("{} {} {}", whose, base.parameters.size() == 1 ? "is" : "are", text_of(base));
    const bool all = base.parameters.size() == judged && unlike.empty();
    const std::string remark = "; " + (all ? text_of(base) : told);
    if (is_meant(base)) {
      remark_ += remark + ", as it is meant to be";
      return;
    }
    if (is_mean(base)) {
      remark_ += remark;
      return;
    }
    if (is_sum(base) && !promised) {
      remark_ += remark + ": their sum, which is right where the loss is divided by the batch of all ranks";
      return;
    }
    if (!is_twice(base) && !is_sum(base) && norm > 0) {
      remark_ += fmt::format("{}: clipped to a norm of {:.2g}", remark, norm);
      return;
    }
    found.message = told;
    if (is_sum(base) || is_twice(base)) {
      found.severity = Severity::fault;
      found.message += is_sum(base) ? ": summed and not averaged" : ": averaged twice";
    } else {
      found.message += fmt::format(
          ": divided by another number than that of the ranks, or scaled or clipped in a way that grads does not "
          "know of (--factor {:.4g} says that it is meant)",
          base.factor);
    }
    for (const size_t p : base.parameters) found.tensors.push_back(tensor(p));
    findings_.push_back(std::move(found));
    return;
  }
  // What is said of each group but the largest, which is then the rest.
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
  // Where it is the rest that is wrong, or nobody knows which, it is named, too.
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
