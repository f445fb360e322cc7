// What a comparison says, in findings.
#pragma once
#include <string>

#include "inspectors/compare/causes.h"
#include "inspectors/compare/judge.h"

namespace lockstep::inspect::compare {

/// Returns "the gradient of blocks.1.ln1.weight".
std::string value_words(const PieceKey& key);
/// Returns the same with the step before it.
std::string words_of(const PieceKey& key);
/// Adds it, but for steps.
void add_value(std::vector<std::string>& values, const PieceKey& key);

Finding finding_of(const Wrong& wrong, const Cause& cause);
/// Of two pieces in runs of one layout.
Finding finding_of_pair(const PieceKey& key, const Piece& piece, const RankSet& ranks, double error, double tolerance);
/// Of a parameter without a gradient on these ranks.
Finding finding_of_absent(const PieceKey& key, const RankSet& ranks);
/// Of a parameter that has no gradient in the reference.
Finding finding_of_extra(const PieceKey& key, const RankSet& absent, const std::vector<RankPiece>& pieces);

/// Returns how far pieces of runs of one layout are apart, relative; infinity where shape, dtype or presence differ.
double error_between(const Piece& a, const Piece& b);

/// Completes the findings: how many values follow the fault, or that nothing differs; what was not compared; and what the
/// recorders have noted.
void add_notes(const Run& reference, const Run& candidate, Comparison& comparison);

}  // namespace lockstep::inspect::compare
