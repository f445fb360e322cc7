#include "inspectors/compare/tolerance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep::inspect::compare {
namespace {

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

}  // namespace

std::map<PieceKey, double> tolerances(const Pieces& reference, const std::vector<Pieces>& perturbed, double factor,
                                      double without) {
  std::map<PieceKey, double> result;
  if (perturbed.empty()) {
    for (const PieceKey& key : reference.order()) result[key] = without;
    return result;
  }
  // Where one run is far from the others, four do not show how far rounding goes: as for parameters after the first step
  // of AdamW, where a gradient of rounding's size decides by its sign. That is a property of the kind of value.
  std::array<double, kPieceKinds> of_kind;
  of_kind.fill(factor);
  for (const PieceKey& key : reference.order()) {
    const double least = rounding_of(reference.of(key).front().piece->element);
    std::vector<double> errors;
    for (const Pieces& each : perturbed) errors.push_back(std::max(error_of(reference.of(key), each.of(key)), least));
    std::ranges::sort(errors);
    const double largest = errors.back();
    result[key] = largest;
    if (errors.size() < 2 || largest > kSaysNothing / factor || errors.rbegin()[1] <= 0) continue;
    double& spread = of_kind[static_cast<size_t>(key.kind)];
    spread = std::min(std::max(spread, 2 * largest / errors.rbegin()[1]), 4 * factor);
  }
  for (auto& [key, tolerance] : result) tolerance *= of_kind[static_cast<size_t>(key.kind)];
  return result;
}

}  // namespace lockstep::inspect::compare
