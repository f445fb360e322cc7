// Compares one run of each rank between ranks.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective. All ranks get the same report. `function` is what they called, for findings about ranks that did not.
Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options,
                     const char* function);

}  // namespace lockstep::inspect
