// One run of each rank, compared between ranks.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective. The same report on all ranks. `function`: what the ranks called, for findings about ranks that did not.
Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options,
                     const char* function);

}  // namespace lockstep::inspect
