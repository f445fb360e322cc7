// Training with uneven inputs: ranks that are out of data answer the collectives of those that are not.
#pragma once
#include <functional>
#include <vector>

#include "ddp/distributed_module.h"

namespace lockstep::ddp {

/// DistributedModule::join for several wrapped modules that are trained in one loop, one after the other (forward and
/// backward of the first, then of the second: the others answer in that order), all over one
/// group. Collective. Throws std::invalid_argument without modules or with several groups.
void join(const std::vector<DistributedModule>& nets, const std::function<void()>& training_loop,
          const JoinOptions& options = {});

}  // namespace lockstep::ddp
