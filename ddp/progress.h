// What a step changes of a wrapper itself, beside its module: kept and put back by tools that run steps and take them back.
#pragma once
#include <cstdint>

#include "ddp/distributed_module.h"

namespace lockstep::ddp {

struct Progress {
  int64_t steps = 0;
  bool require_backward_grad_sync = true;
  bool last_forward_was_local = false;  // then the next forward leaves the buffers as they are
  bool buffers_may_differ = false;
};

/// Local.
Progress progress_of(const DistributedModule& net);
/// Between steps. The count of steps is put back where `steps` says so. Local.
void set_progress(const DistributedModule& net, const Progress& progress, bool steps = true);

}  // namespace lockstep::ddp
