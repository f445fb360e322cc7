#include "inspectors/compare/tolerance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::inspect::compare {
namespace {

constexpr double kOfHalves =
    0x1p-14;  // a difference that is larger is one of float16 or bfloat16, in a run that has them

/// Returns the largest relative difference over micro-batches.
double error_of(const std::vector<RankPiece>& reference, const std::vector<RankPiece>& perturbed) {
  double error = 0;
  for (const RankPiece& each : reference) {
    const auto same = std::ranges::find_if(
        perturbed, [&](const RankPiece& other) { return other.piece->micro_batch == each.piece->micro_batch; });
    if (same == perturbed.end()) return std::numeric_limits<double>::infinity();
    const double size = norm(each.piece->summary.sums);
    const double apart = norm(difference(same->piece->summary.sums, 1, each.piece->summary.sums));
    if (apart > 0 || std::isnan(apart)) error = std::max(error, size > 0 ? apart / size : INFINITY);
  }
  return error;
}

/// Whether any value is of float16 or bfloat16.
bool has_halves(const Pieces& reference) {
  return std::ranges::any_of(reference.order(), [&](const PieceKey& key) {
    const Element element = reference.of(key).front().piece->element;
    return element == Element::bfloat16 || element == Element::float16;
  });
}

}  // namespace

std::map<PieceKey, double> tolerances(const Pieces& reference, const std::vector<Pieces>& perturbed, double factor,
                                      double without) {
  std::map<PieceKey, double> result;
  if (perturbed.empty()) {
    for (const PieceKey& key : reference.order()) result[key] = without;
    return result;
  }
  // Sums of numbers of 16 bits are made in float32, so that another order changes no more of them than their rounding,
  // which is what was perturbed. Of those of 32 bits, it changes each addition.
  const bool are_halves = has_halves(reference);
  const auto factor_for = [&](double error) { return are_halves && error > kOfHalves ? factor / 4 : factor; };
  // Where one run is far from the others, four do not show how far rounding goes: as for parameters after the first step
  // of AdamW, where a gradient of rounding's size decides by its sign. That is a property of the kind of value.
  std::array<double, kPieceKinds> spread_of_kind;
  spread_of_kind.fill(1);
  for (const PieceKey& key : reference.order()) {
    const double least = rounding_of(reference.of(key).front().piece->element);
    std::vector<double> errors;
    for (const Pieces& each : perturbed) errors.push_back(std::max(error_of(reference.of(key), each.of(key)), least));
    std::ranges::sort(errors);
    const double largest = errors.back();
    result[key] = largest * factor_for(largest);
    if (errors.size() < 2 || result[key] > kSaysNothing || errors.rbegin()[1] <= 0) continue;
    double& spread = spread_of_kind[static_cast<size_t>(key.kind)];
    spread = std::clamp(2 * largest / errors.rbegin()[1] / factor, spread, 4.0);
  }
  for (auto& [key, tolerance] : result) tolerance *= spread_of_kind[static_cast<size_t>(key.kind)];
  return result;
}

}  // namespace lockstep::inspect::compare
