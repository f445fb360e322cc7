// Judges what a job died of, or what it is stuck in, by what it left behind.
#pragma once
#include <vector>

#include "inspectors/remains/remains.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// Consequences first, the first cause last. Faults are what the files prove or make likely as the cause: an exception
/// that no other rank explains; ranks that called different collectives; a rank that has not called one in which others
/// wait; a collective that all have called and none has finished. Notes are what follows from another finding, and what
/// the files can't say: ranks without a dump, files that were not read. Without a fault the last finding is `ok`, or a
/// note that says why nothing is known. Findings that rest on the Flight Recorder alone say so: it knows that a
/// collective was scheduled, and dumps of different ranks are of different moments. Those that rest on the collective
/// logs of the ranks are proven.
std::vector<Finding> judge(const Remains& remains);

}  // namespace lockstep::inspect
