// Makes the findings about the identities of all ranks. Pure: identities in, findings out.
#pragma once
#include <string>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/ranks/ranks.h"

namespace lockstep::inspect {

/// Returns the faults and notes, without an `ok`. `expected` are the ranks that should have called.
std::vector<Finding> compare_identities(const std::vector<RankIdentity>& identities, const RankSet& expected);
/// Returns the same, and an `ok` if there is no fault. `identities` are by rank index.
std::vector<Finding> ranks_findings(const About& about, const std::vector<RankIdentity>& identities);

/// Returns the cells ("cell 3") whose code differs between ranks.
std::vector<std::string> cells_that_differ(const std::vector<RankIdentity>& identities);

}  // namespace lockstep::inspect
