// Judges ranks whose gradients are zero or have an outlying norm.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "inspectors/findings/median.h"
#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/grads/parameters_by_ranks.h"

namespace lockstep::inspect {
namespace {

// A norm below this share of that of all gradients is rounding noise: of a bias before a batch norm, for example.
constexpr double kNegligible = 1e-5;
// Deviations of logarithms are at least this, since ranks have different batches.
constexpr double kLeastDeviation = 0.25;

/// Returns for each norm the score that is compared with GradsOptions::threshold.
std::vector<double> outlier_scores(const std::vector<double>& norms) {
  std::vector<double> scores(norms.size(), 0);
  const auto ratio = [](double a, double b) {
    if (a == b) return 1.0;
    return std::min(a, b) > 0 ? std::max(a / b, b / a) : INFINITY;
  };
  if (norms.size() < 4) {
    for (size_t i = 0; i < norms.size(); ++i)
      scores[i] = ratio(norms[i], norms.size() == 2 ? norms[1 - i] : median(norms));
    return scores;
  }
  std::vector<double> logarithms;
  for (const double each : norms) logarithms.push_back(std::log(std::max(each, 1e-300)));
  const double middle = median(logarithms);
  std::vector<double> deviations;
  for (const double each : logarithms) deviations.push_back(std::abs(each - middle));
  const double deviation = std::max(1.4826 * median(deviations), kLeastDeviation);
  for (size_t i = 0; i < norms.size(); ++i) scores[i] = deviations[i] / deviation;
  return scores;
}

}  // namespace

void GradsFindings::zeros() {
  const bool before = compares_before();
  std::vector<bool> zero;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    bool any = false, all = true;
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const GradFacts& facts = of(r, p, before);
      any |= facts.present;
      if (facts.present && !facts.zero()) all = false;
    }
    zero.push_back(any && all);
  }
  const RankSet ranks = ranks_where(zero);
  if (ranks.empty() || ranks == ranks_) return;
  Finding found = finding(Severity::note, Verdict::outlier, FindingKind::gradient, ranks);
  found.message =
      fmt::format("every gradient of {} is zero; those of {} are not", ranks.words(), (ranks_ - ranks).words());
  findings_.push_back(std::move(found));
}

std::vector<size_t> GradsFindings::main_parameters(const RankSet& outliers,
                                                   const std::vector<size_t>& rank_indices) const {
  constexpr double kMostOfIt = 0.9;  // of the difference of squares, which add up to those of the norm
  const bool before = compares_before();
  std::vector<std::pair<double, size_t>> differences;
  double total = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    double squares = 0;
    for (const size_t r : rank_indices) {
      if (!outliers.contains(ranks_.ranks()[r])) continue;
      std::vector<double> others;
      for (const size_t other : rank_indices)
        if (other != r) others.push_back(of(other, p, before).mark.norm);
      squares += std::abs(std::pow(of(r, p, before).mark.norm, 2) - std::pow(median(others), 2));
    }
    differences.emplace_back(squares, p);
    total += squares;
  }
  std::ranges::stable_sort(differences, std::greater<>(), &std::pair<double, size_t>::first);
  std::vector<size_t> most;
  double covered = 0;
  for (const auto& [squares, p] : differences) {
    if (covered >= kMostOfIt * total) break;
    covered += squares;
    most.push_back(p);
  }
  if (most.size() * 2 > parameters_.size() && parameters_.size() > 1) most.clear();
  return most;
}

std::string GradsFindings::norms_text(const std::vector<double>& norms, const std::vector<size_t>& rank_indices) const {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < norms.size() && i < kMost; ++i)
    text += fmt::format("{}{:.3g} on rank {}", i ? ", " : "", norms[i], ranks_.ranks()[rank_indices[i]]);
  return norms.size() > kMost ? text + ", …" : text;
}

RankSet GradsFindings::outlier_ranks(const std::vector<double>& norms, const std::vector<size_t>& rank_indices) const {
  const std::vector<double> scores = outlier_scores(norms);
  RankSet ranks;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] >= options_.threshold()) ranks.insert(ranks_.ranks()[rank_indices[i]]);
  return ranks;
}

std::string GradsFindings::common_factor(const RankSet& outliers, const std::vector<size_t>& rank_indices,
                                         double middle) const {
  if (outliers.size() > 1 && rank_indices.size() > 2) return "";
  const bool before = compares_before();
  const int rank = outliers.ranks().back();
  const auto index = static_cast<size_t>(std::ranges::find(ranks_, rank) - ranks_.begin());
  std::vector<double> ratios;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<double> others;
    for (const size_t r : rank_indices)
      if (r != index && of(r, p, before).present) others.push_back(of(r, p, before).mark.norm);
    const double mine = of(index, p, before).mark.norm, theirs = median(others);
    if (theirs > kNegligible * middle && mine > 0) ratios.push_back(mine / theirs);
  }
  const double factor = median(ratios);
  const bool uniform = ratios.size() > 1 &&
                       std::ranges::all_of(ratios, [&](double each) { return each < 2 * factor && each > factor / 2; });
  if (!uniform) return "";
  return fmt::format("; all gradients differ by about the same factor, {:.3g}: another loss scale on rank {}?", factor,
                     rank);
}

void GradsFindings::outliers() {
  const bool before = compares_before();
  const auto is_finite = [&](size_t r) {
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (const GradFacts& facts = of(r, p, before); facts.mark.nan_count + facts.mark.inf_count > 0) return false;
    return true;
  };
  // Ranks without gradients, with zeros only, and with NaN or Inf have findings of their own.
  std::vector<size_t> rank_indices;
  std::vector<double> norms;
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (const double norm = total_norm(r, before); norm > 0 && is_finite(r))
      rank_indices.push_back(r), norms.push_back(norm);
  if (rank_indices.size() < 2) return;
  const double middle = median(norms);

  if (const RankSet ranks = outlier_ranks(norms, rank_indices); !ranks.empty()) {
    Finding found = finding(Severity::note, Verdict::outlier, FindingKind::gradient, ranks);
    const std::string factor = common_factor(ranks, rank_indices, middle);
    found.message = fmt::format("the gradient of {} is unlike the others': norm {}{}", ranks.words(),
                                norms_text(norms, rank_indices), factor);
    if (const std::vector<size_t> most = main_parameters(ranks, rank_indices); factor.empty() && !most.empty()) {
      for (const size_t p : most) {
        found.tensors.push_back(tensor(p));
        for (const size_t r : rank_indices) found.tensors.back().norms[ranks_.ranks()[r]] = of(r, p, before).mark.norm;
      }
      std::vector<double> values;
      for (const size_t r : rank_indices) values.push_back(of(r, most[0], before).mark.norm);
      found.message += fmt::format("; because of {} (norm {}{})", names_of(most), norms_text(values, rank_indices),
                                   most.size() == 1 ? "" : " in " + found.tensors[0].name);
    }
    findings_.push_back(std::move(found));
    return;
  }
  ParametersByRanks found_on;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<double> values;
    for (const size_t r : rank_indices)
      if (of(r, p, before).present) values.push_back(of(r, p, before).mark.norm);
    if (values.size() < rank_indices.size() || *std::ranges::max_element(values) < kNegligible * middle) continue;
    // A rank whose data does not reach a parameter has zeros there, which matters only for a large gradient.
    if (*std::ranges::min_element(values) == 0 && median(values) < 1e-2 * middle) continue;
    if (const RankSet ranks = outlier_ranks(values, rank_indices); !ranks.empty()) found_on.add(ranks, p);
  }
  for (const auto& [list, parameters] : found_on.by_ranks) {
    const RankSet ranks(list);
    const bool one = parameters.size() == 1;
    Finding found = finding(Severity::note, Verdict::outlier, FindingKind::gradient, ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    std::vector<double> values;
    for (const size_t r : rank_indices) values.push_back(of(r, parameters[0], before).mark.norm);
    found.message =
        fmt::format("{} of {} {} unlike the others': norm {}{}", in_how_many(parameters.size()), ranks.words(),
                    one ? "is" : "are", norms_text(values, rank_indices), one ? "" : " in " + found.tensors[0].name);
    findings_.push_back(std::move(found));
  }
}

}  // namespace lockstep::inspect
