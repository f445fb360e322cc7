// What all ranks found each in its own two runs. Pure: facts in, findings out.
#pragma once
#include <cstdint>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/lockstep/facts.h"

namespace lockstep::inspect {

/// One finding for all ranks that have the same; an `ok` where no rank has one. `facts`: by rank index;
/// `max_operators`: as in LockstepOptions.
std::vector<Finding> self_findings(const About& about, const std::vector<SelfFacts>& facts, int64_t max_operators);

}  // namespace lockstep::inspect
