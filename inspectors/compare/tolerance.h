// Finds how large a difference rounding explains, from perturbed runs of the reference: in these, every value that a
// module returns, and every gradient that leaves it, was changed by half a unit in the last place.
#pragma once
#include <map>
#include <vector>

#include "inspectors/compare/runs.h"

namespace lockstep::inspect::compare {

constexpr double kRoundingFactor = 16;  // between the largest difference of perturbed runs and the tolerance

/// A value of which rounding explains this much says nothing: a gradient that is zero in exact arithmetic, for instance.
constexpr double kSaysNothing = 0.3;

/// Returns the tolerance of each value, relative to its Euclidean norm. Without perturbed runs it is `without` for all.
std::map<PieceKey, double> tolerances(const Pieces& reference, const std::vector<Pieces>& perturbed, double factor,
                                      double without);

}  // namespace lockstep::inspect::compare
