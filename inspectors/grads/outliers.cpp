// Ranks whose gradients are unlike the others': zero, or of another size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "inspectors/findings/median.h"
#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/grads/gathered_parameters.h"

namespace lockstep::inspect {
namespace {

// Norms whose share of the whole gradient is below this are rounding noise: a bias in front of a batch norm, say.
constexpr double kNegligible = 1e-5;
// Deviation of logarithms that batches of their own are given in any case.
constexpr double kLeastDeviation = 0.25;

/// How unlike the others each norm is (see GradsOptions::threshold); 0 where there is nothing to say.
std::vector<double> unlikeness(const std::vector<double>& norms) {
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
  Finding found = finding(Severity::note, "outlier", "gradient", ranks);
  found.message =
      fmt::format("every gradient of {} is zero; those of {} are not", ranks.words(), (ranks_ - ranks).words());
  findings_.push_back(std::move(found));
}

std::vector<size_t> GradsFindings::heaviest(const RankSet& odd, const std::vector<size_t>& places) const {
  // Of the difference in squares, of which norms are sums.
  constexpr double kMost = 0.9;
  const bool before = compares_before();
  std::vector<std::pair<double, size_t>> excess;
  double whole = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    double squares = 0;
    for (const size_t r : places) {
      if (!odd.contains(ranks_.ranks()[r])) continue;
      std::vector<double> others;
      for (const size_t other : places)
        if (other != r) others.push_back(of(other, p, before).mark.norm);
      squares += std::abs(std::pow(of(r, p, before).mark.norm, 2) - std::pow(median(others), 2));
    }
    excess.emplace_back(squares, p);
    whole += squares;
  }
  std::ranges::stable_sort(excess, std::greater<>(), &std::pair<double, size_t>::first);
  std::vector<size_t> most;
  double covered = 0;
  for (const auto& [squares, p] : excess) {
    if (covered >= kMost * whole) break;
    covered += squares;
    most.push_back(p);
  }
  // Where it is in most of them, none of them is the cause.
  if (most.size() * 2 > parameters_.size() && parameters_.size() > 1) most.clear();
  return most;
}

void GradsFindings::outliers() {
  const bool before = compares_before();
  std::vector<double> totals;
  for (size_t r = 0; r < ranks_.size(); ++r) totals.push_back(total_norm(r, before));
  const auto finite = [&](size_t r) {
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (const GradFacts& facts = of(r, p, before); facts.mark.nan_count + facts.mark.inf_count > 0) return false;
    return true;
  };
  // A rank without any gradient, with zeros alone, or with NaN or Inf was told of.
  std::vector<size_t> places;
  std::vector<double> norms;
  for (size_t r = 0; r < totals.size(); ++r)
    if (totals[r] > 0 && finite(r)) places.push_back(r), norms.push_back(totals[r]);
  if (places.size() < 2) return;
  const double whole = median(norms);

  const auto list_norms = [&](const std::vector<double>& values) {
    std::string text;
    for (size_t i = 0; i < values.size() && i < 8; ++i)
      text += fmt::format("{}{:.3g} on rank {}", i ? ", " : "", values[i], ranks_.ranks()[places[i]]);
    return values.size() > 8 ? text + ", …" : text;
  };
  const auto odd_ranks = [&](const std::vector<double>& values) {
    const std::vector<double> scores = unlikeness(values);
    RankSet ranks;
    for (size_t i = 0; i < scores.size(); ++i)
      if (scores[i] >= options_.threshold()) ranks.insert(ranks_.ranks()[places[i]]);
    return ranks;
  };

  const RankSet odd = odd_ranks(norms);
  if (!odd.empty()) {
    // The same factor in every gradient: it is the loss that is scaled, and not the data that is odd.
    std::string scale;
    if (const int rank = odd.ranks().back(); odd.size() == 1 || places.size() == 2) {
      const auto place = static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
      std::vector<double> ratios;
      for (size_t p = 0; p < parameters_.size(); ++p) {
        std::vector<double> others;
        for (const size_t r : places)
          if (r != place && of(r, p, before).present) others.push_back(of(r, p, before).mark.norm);
        const double mine = of(place, p, before).mark.norm, theirs = median(others);
        if (theirs > kNegligible * whole && mine > 0) ratios.push_back(mine / theirs);
      }
      const double middle = median(ratios);
      const bool uniform = ratios.size() > 1 && std::all_of(ratios.begin(), ratios.end(), [&](double each) {
                             return each < 2 * middle && each > middle / 2;
                           });
      if (uniform)
        scale = fmt::format("; all gradients by about the same factor, {:.3g}: another loss scale on rank {}?", middle,
                            rank);
    }
    Finding found = finding(Severity::note, "outlier", "gradient", odd);
    found.message =
        fmt::format("the gradient of {} is unlike the others': norm {}{}", odd.words(), list_norms(norms), scale);
    if (const std::vector<size_t> most = heaviest(odd, places); scale.empty() && !most.empty()) {
      for (const size_t p : most) {
        found.tensors.push_back(tensor(p));
        for (const size_t r : places) found.tensors.back().norms[ranks_.ranks()[r]] = of(r, p, before).mark.norm;
      }
      std::vector<double> values;
      for (const size_t r : places) values.push_back(of(r, most[0], before).mark.norm);
      found.message += fmt::format("; because of {} (norm {}{})", names_of(most), list_norms(values),
                                   most.size() == 1 ? "" : " in " + found.tensors[0].name);
    }
    findings_.push_back(std::move(found));
    return;
  }
  Gathered gathered;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<double> values;
    for (const size_t r : places)
      if (of(r, p, before).present) values.push_back(of(r, p, before).mark.norm);
    if (values.size() < places.size() || *std::max_element(values.begin(), values.end()) < kNegligible * whole)
      continue;
    // Ranks whose data does not reach a parameter have zeros there; it is of interest where the gradient is a good
    // part.
    if (*std::min_element(values.begin(), values.end()) == 0 && median(values) < 1e-2 * whole) continue;
    if (const RankSet ranks = odd_ranks(values); !ranks.empty()) gathered.add(ranks, p);
  }
  for (const auto& [list, parameters] : gathered.by_ranks) {
    const RankSet ranks(list);
    Finding found = finding(Severity::note, "outlier", "gradient", ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    std::vector<double> values;
    for (const size_t r : places) values.push_back(of(r, parameters[0], before).mark.norm);
    found.message = fmt::format("{} of {} {} unlike the others': norm {}{}", in_how_many(parameters.size()),
                                ranks.words(), parameters.size() == 1 ? "is" : "are", list_norms(values),
                                parameters.size() == 1 ? "" : " in " + found.tensors[0].name);
    findings_.push_back(std::move(found));
  }
}

}  // namespace lockstep::inspect
