// Two runs of a rank, compared with each other.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective: each rank compares its own runs. The same report on all ranks. `function`: what the ranks called.
Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* function);

}  // namespace lockstep::inspect
