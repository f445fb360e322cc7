#include "ddp/inspection.h"

#include <utility>

#include "ddp/state.h"
#include "ddp/wrappers.h"

namespace lockstep::ddp {

std::optional<DistributedModule> Inspection::wrapper_of(const torch::nn::Module& module) {
  auto state = detail::find_wrapper(module);
  if (!state) return std::nullopt;
  return DistributedModule(std::move(state));
}

std::shared_ptr<const void> Inspection::on_step(std::function<void()> listener) const {
  return state_->steps().listen(std::move(listener));
}

bool Inspection::last_forward_was_local() const { return !state_->buffer_sync().last_forward_was_reduced(); }
bool Inspection::has_stale_gradients() const { return state_->has_answered(); }
bool Inspection::has_stale_parameters() const { return state_->is_in_join() && state_->has_answered(); }
bool Inspection::buffers_may_differ() const { return state_->buffer_sync().may_differ(); }

const StepMarks& Inspection::device_marks() const {
  state_->marks().turn_on();
  return state_->marks().marks();
}

Progress Inspection::progress() const {
  return {.steps = state_->steps().count(),
          .require_backward_grad_sync = state_->requires_grad_sync(),
          .last_forward_was_local = last_forward_was_local(),
          .buffers_may_differ = buffers_may_differ()};
}

void Inspection::set_progress(const Progress& progress, bool steps) const {
  state_->require_grad_sync(progress.require_backward_grad_sync);
  state_->buffer_sync().set_last_forward_was_reduced(!progress.last_forward_was_local);
  state_->buffer_sync().set_may_differ(progress.buffers_may_differ);
  if (steps) state_->steps().set(progress.steps);
}

}  // namespace lockstep::ddp
