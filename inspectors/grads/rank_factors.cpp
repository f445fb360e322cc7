// Finds ranks whose gradients went into the reduction with a factor of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "inspectors/grads/findings.h"

namespace lockstep::inspect {

/// Uses least squares over the sketches of all gradients.
std::vector<double> GradsFindings::factors_of_ranks() const {
  const size_t n = ranks_.size();
  std::vector<std::vector<double>> equations;  // a number of each rank's gradient, and that of the reduced one
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const GradFacts& now = of(0, p, false);
    bool usable = now.present;
    for (size_t r = 0; r < n && usable; ++r)
      usable = of(r, p, false).mark.hash == now.mark.hash &&
               of(r, p, true).mark.nan_count + of(r, p, true).mark.inf_count == 0;
    for (size_t i = 0; i < now.sketch.size() && usable; ++i) {
      std::vector<double>& row = equations.emplace_back();
      for (size_t r = 0; r < n; ++r) row.push_back(of(r, p, true).sketch[i]);
      row.push_back(now.sketch[i]);
    }
  }
  // Fewer numbers than that are explained by factors that mean nothing.
  if (equations.size() < 4 * n) return {};
  std::vector<std::vector<double>> normal(n, std::vector<double>(n + 1));
  for (const auto& row : equations)
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b <= n; ++b) normal[a][b] += row[a] * row[b];
  double greatest = 0;
  for (size_t r = 0; r < n; ++r) greatest = std::max(greatest, normal[r][r]);
  for (size_t column = 0; column < n; ++column) {
    const auto largest = std::ranges::max_element(normal.begin() + static_cast<std::ptrdiff_t>(column), normal.end(),
                                                  {}, [&](const auto& row) { return std::abs(row[column]); });
    std::swap(normal[column], *largest);
    // Ranks with the same gradients have no factors of their own.
    if (std::abs(normal[column][column]) <= 1e-9 * greatest) return {};
    for (size_t row = 0; row < n; ++row) {
      if (row == column) continue;
      const double times = normal[row][column] / normal[column][column];
      for (size_t b = column; b <= n; ++b) normal[row][b] -= times * normal[column][b];
    }
  }
  std::vector<double> factors;
  for (size_t r = 0; r < n; ++r) factors.push_back(normal[r][n] / normal[r][r]);
  // These are what the factors leave unexplained, and what one factor for all ranks does.
  double squares = 0, residual = 0, product = 0, sums = 0;
  for (const auto& row : equations) {
    double explained = 0, sum = 0;
    for (size_t r = 0; r < n; ++r) explained += factors[r] * row[r], sum += row[r];
    squares += row[n] * row[n];
    residual += std::pow(row[n] - explained, 2);
    product += row[n] * sum;
    sums += sum * sum;
  }
  const double of_one_factor = squares - product * product / sums;
  if (!(residual <= 1e-6 * squares && residual <= 1e-4 * of_one_factor)) return {};
  for (double& each : factors) each *= static_cast<double>(n);
  return factors;
}

void GradsFindings::scaled_before(const std::vector<double>& factors) {
  constexpr size_t kNamed = 4;
  const double most = *std::ranges::max_element(factors);
  double longest = 0;
  for (size_t r = 0; r < factors.size(); ++r) longest = std::max(longest, factors[r] * total_norm(r, true));
  // clip_grad_norm_ makes one norm for each rank whose gradient was longer.
  bool clipped = true;
  std::vector<std::string> texts;
  for (size_t r = 0; r < factors.size(); ++r) {
    clipped = clipped && (is_near(factors[r], most, 1e-2) || is_near(factors[r] * total_norm(r, true), longest, 1e-2));
    if (r < kNamed) texts.push_back(fmt::format("{:.3g} on rank {}", factors[r], ranks_.ranks()[r]));
  }
  Finding found = finding(Severity::note, Verdict::mismatch, FindingKind::reduction, ranks_);
  found.message =
      fmt::format("not the mean over ranks: the gradients of each rank went into it with a factor of its own, {}{}: {}",
                  fmt::join(texts, ", "), factors.size() > kNamed ? ", …" : "",
                  clipped ? "clipped on each rank before the reduction? Clip after it"
                          : "scaled on each rank before the reduction (a loss scale, a weight)?");
  findings_.push_back(std::move(found));
}

}  // namespace lockstep::inspect
