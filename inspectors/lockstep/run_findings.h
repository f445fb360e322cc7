// Makes the findings of runs that are compared between ranks. Pure: details in, findings out.
#pragma once
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/lockstep/facts.h"
#include "inspectors/lockstep/lockstep.h"
#include "inspectors/lockstep/run_details.h"

namespace lockstep::inspect {

/// Returns the fault that explains the others, or an `ok`; and notes. `facts` are by rank index.
std::vector<Finding> run_findings(const About& about, const RunDetails& details, const std::vector<RunFacts>& facts,
                                  const LockstepOptions& options);

}  // namespace lockstep::inspect
