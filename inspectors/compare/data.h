// Compares the samples of a run with those of the reference, by their content, before anything else is compared.
#pragma once
#include <optional>

#include "inspectors/compare/values.h"
#include "protocol/finding.h"

namespace lockstep::inspect::compare {

/// Returns what is wrong with the samples of the candidate in a step. Finds the row of each in the reference's batch.
std::optional<Finding> compare_data(const Layout& reference, const Layout& candidate, uint32_t step, Rows& rows);

/// Returns the index of each row of the reference's batch among the rows with a recorded value; -1: it has none.
std::vector<int64_t> recorded_rows(const Layout& reference, const std::vector<RankPiece>& pieces);

/// Returns the rows of a candidate's pieces among the recorded ones; nothing where the reference has not recorded all
/// of them.
std::optional<Rows> rows_among(const std::vector<int64_t>& recorded, const std::vector<RankPiece>& pieces,
                               const Rows& rows);

/// Compares the samples of two runs of one layout: each rank has been given the same samples in the same order.
std::optional<Finding> compare_same_data(const Layout& reference, const Layout& candidate, uint32_t step);

}  // namespace lockstep::inspect::compare
