// Makes the findings of ranks that have each compared their own two runs, and of runs that are compared between ranks.
// Pure: facts and details in, findings out.
#pragma once
#include <cstdint>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/lockstep/facts.h"
#include "inspectors/lockstep/lockstep.h"
#include "inspectors/lockstep/run_details.h"

namespace lockstep::inspect {

/// Equal findings of several ranks are one; an `ok` if no rank has any. `facts` are by rank index, `max_operators` is
/// as in LockstepOptions.
std::vector<Finding> self_findings(const About& about, const std::vector<SelfFacts>& facts, int64_t max_operators);

/// Returns the fault that explains the others, or an `ok`; and notes. `facts` are by rank index.
std::vector<Finding> run_findings(const About& about, const RunDetails& details, const std::vector<RunFacts>& facts,
                                  const LockstepOptions& options);

}  // namespace lockstep::inspect
