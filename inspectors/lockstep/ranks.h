// What ran on the ranks, compared between them.
#pragma once
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Collective. The same report on all ranks.
Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options,
                     const char* function);

}  // namespace lockstep::inspect
