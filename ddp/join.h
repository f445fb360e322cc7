// Trains with uneven inputs: ranks that are out of data answer the collectives of those that still train.
#pragma once
#include <functional>
#include <vector>

#include "ddp/distributed_module.h"

namespace lockstep::ddp {

/// Does what DistributedModule::join does for several wrapped modules over one group that are trained in one loop, one
/// after the other: forward and backward of the first, then of the second. Ranks that are out of data answer in that
/// order. Collective. Throws ArgumentError without modules, with several groups, or for modules whose collectives no
/// rank could answer; StateError for a forward out of turn.
void join(const std::vector<DistributedModule>& nets, const std::function<void()>& training_loop,
          const JoinOptions& options = {});

}  // namespace lockstep::ddp
