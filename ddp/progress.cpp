#include "ddp/progress.h"

#include "ddp/state.h"

namespace lockstep::ddp {

Progress progress_of(const DistributedModule& net) {
  return {.steps = net.steps(),
          .require_backward_grad_sync = net.require_backward_grad_sync(),
          .last_forward_was_local = net.last_forward_was_local(),
          .buffers_may_differ = net.buffers_may_differ()};
}

void set_progress(const DistributedModule& net, const Progress& progress, bool steps) {
  detail::State& state = *net.state();
  state.require_backward_grad_sync = progress.require_backward_grad_sync;
  state.require_forward_param_sync = !progress.last_forward_was_local;
  state.buffers_written = progress.buffers_may_differ;
  if (steps) net.set_steps(progress.steps);
}

}  // namespace lockstep::ddp
