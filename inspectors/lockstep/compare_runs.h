// Compares runs of a step: one of each rank between ranks, or two of a rank with each other.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective. All ranks get the same report. `function` is what they called, for findings about ranks that did not.
Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options,
                     const char* function);

/// Collective: each rank compares its own runs. All ranks get the same report. `function` is what the ranks called.
Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* function);

}  // namespace lockstep::inspect
