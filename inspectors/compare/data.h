// Whether a run was given the samples of the reference: compared by their content, before anything else.
#pragma once
#include <optional>

#include "inspectors/compare/values.h"
#include "protocol/finding.h"

namespace lockstep::inspect::compare {

/// Returns what is wrong with the samples of the candidate in a step, and finds the row of each in the reference's batch.
std::optional<Finding> compare_data(const Layout& reference, const Layout& candidate, uint32_t step, Rows& rows);

/// The same for two runs of one layout: each rank has been given the same samples in the same order.
std::optional<Finding> compare_same_data(const Layout& reference, const Layout& candidate, uint32_t step);

}  // namespace lockstep::inspect::compare
