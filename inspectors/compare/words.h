// Makes the findings of a comparison, and their words.
#pragma once
#include <map>
#include <string>

#include "inspectors/compare/causes.h"
#include "inspectors/compare/judge.h"

namespace lockstep::inspect::compare {

/// Returns "the gradient of blocks.1.ln1.weight".
std::string value_words(const PieceKey& key);
/// Returns the same with the step before it.
std::string words_of(const PieceKey& key);
FindingTensor tensor_of(const PieceKey& key, const Piece& piece);
/// Adds the words of a value once for all steps. `ranks`: those that it is about, unless it is about all.
void add_value(std::vector<std::string>& values, const PieceKey& key, const RankSet& ranks = {});

/// `unit`: what the tolerance is (Comparison).
Finding finding_of(const Wrong& wrong, const Cause& cause, const std::string& unit);
/// Returns the finding of two pieces in runs of one layout.
Finding finding_of_pair(const PieceKey& key, const Piece& piece, const RankSet& ranks, double error, double tolerance,
                        const std::string& unit);
/// Returns the finding of a piece that these ranks have in the reference only.
Finding finding_of_missing(const PieceKey& key, const RankSet& ranks);
/// Returns the finding of a parameter without a gradient on these ranks.
Finding finding_of_absent(const PieceKey& key, const RankSet& ranks);
/// Returns the finding of a parameter that the model has on these ranks, and no optimizer that makes a step.
Finding finding_of_unread(const PieceKey& key, const RankSet& ranks);
/// Returns the finding of a parameter that has no gradient in the reference.
Finding finding_of_extra(const PieceKey& key, const RankSet& absent, const std::vector<RankPiece>& pieces);

/// Returns the finding that a run with replacements of so many steps has found no difference.
Finding finding_of_no_difference(int64_t steps);
/// Returns the finding that there is no run with replacements, or that it can't be judged.
Finding finding_of_failed_run(const std::string& why);

/// Adds values of the same cause to the messages of findings, by their indices.
void add_likewise(const std::map<size_t, std::vector<std::string>>& values, std::vector<Finding>& findings);

/// Returns how far pieces of runs of one layout are apart, relative; infinity where shape, dtype or presence differ.
double error_between(const Piece& a, const Piece& b);

/// Returns "1 step".
std::string steps_words(int64_t steps);
/// Returns where a recording is damaged, in words; nothing: nowhere.
std::string damage_words(const Recording& recording);

/// Completes the findings: how many values follow the fault, or that nothing differs; what was not compared; and what
/// the recorders have noted. Sets `is_same`.
void add_notes(const Run& reference, const Run& candidate, Comparison& comparison);

}  // namespace lockstep::inspect::compare
