// Makes the findings of ranks that have each compared their own two runs. Pure: facts in, findings out.
#pragma once
#include <cstdint>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/lockstep/facts.h"

namespace lockstep::inspect {

/// Equal findings of several ranks are one; an `ok` if no rank has any. `facts` are by rank index, `max_operators` is
/// as in LockstepOptions.
std::vector<Finding> self_findings(const About& about, const std::vector<SelfFacts>& facts, int64_t max_operators);

}  // namespace lockstep::inspect
