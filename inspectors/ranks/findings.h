// What the identities of all ranks amount to. Pure: identities in, findings out.
#pragma once
#include <string>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/ranks/facts.h"

namespace lockstep::inspect {

/// What is wrong with these, where `expected` should have come; without an `ok`.
std::vector<Finding> compare_identities(const std::vector<RankIdentity>& identities, const RankSet& expected);
/// The same, and an `ok` where it has no fault. `identities`: by rank index.
std::vector<Finding> ranks_findings(const About& about, const std::vector<RankIdentity>& identities);

/// The cells ("cell 3") of which ranks run different code.
std::vector<std::string> cells_that_differ(const std::vector<RankIdentity>& identities);

}  // namespace lockstep::inspect
