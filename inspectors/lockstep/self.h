// Compares two runs of a rank with each other.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective: each rank compares its own runs. All ranks get the same report. `function` is what the ranks called.
Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* function);

}  // namespace lockstep::inspect
