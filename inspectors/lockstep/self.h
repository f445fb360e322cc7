// Two runs of a rank, compared with one another.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective: each rank compares its own runs. The same report on all ranks.
Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* function);

}  // namespace lockstep::inspect
