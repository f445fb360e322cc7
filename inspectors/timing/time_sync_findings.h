// Makes the results from the times of all ranks. Pure: facts in, numbers and findings out.
#pragma once
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/timing/time_sync.h"

namespace lockstep::inspect {

/// Leaves out the number and bytes of the reductions. `facts` are by rank index.
TimeSyncReport time_sync_numbers(const std::vector<TimeSyncFacts>& facts);

/// `straggler` is as in TimeSyncOptions.
std::vector<Finding> time_sync_findings(const About& about, const TimeSyncReport& report, double straggler);

}  // namespace lockstep::inspect
