// Gives inspectors what they need of a wrapper beyond its public surface: which wrapper a module has, whether its
// gradients and buffers are those of the last step, and what a step changes of the wrapper itself.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "ddp/distributed_module.h"
#include "ddp/step/step_marks.h"

namespace lockstep::ddp {

/// Holds what a step changes of a wrapper, beside its module. Tools that run steps and take them back keep it.
struct Progress {
  int64_t steps = 0;
  bool require_backward_grad_sync = true;
  bool last_forward_was_local = false;  // then the next forward leaves the buffers as they are
  bool buffers_may_differ = false;
};

/// All functions are local.
class Inspection {
 public:
  explicit Inspection(const DistributedModule& net) : state_(detail::state_of(net)) {}

  /// Returns the last wrapper that was made of this module object, if it lives.
  static std::optional<DistributedModule> wrapper_of(const torch::nn::Module& module);

  /// Calls `listener` after each synchronised backward, on the thread that runs backward, as long as the returned value
  /// lives. In join() it is also called after each one that this rank answers for others, so listeners of all ranks are
  /// called equally often.
  std::shared_ptr<const void> on_step(std::function<void()> listener) const;
  /// Whether the last forward announced no reduction (no_sync), so its gradients stay on this rank.
  bool last_forward_was_local() const;
  /// Whether this rank has answered steps of other ranks in join() since its own last forward, so its gradients are of
  /// an older step.
  bool has_stale_gradients() const;
  /// Whether, in addition, join() still runs: parameters are of an older step, too, until all ranks take the model of
  /// one that trained last.
  bool has_stale_parameters() const;
  /// Whether a forward has run since the buffers were made equal. With broadcast_buffers, each rank's own batch makes
  /// them differ until the next forward.
  bool buffers_may_differ() const;

  /// Returns the marks of the last synchronised step on the replica's device. The first call turns recording on, so it
  /// returns none. Recording costs two events a step. There are none on the CPU.
  const StepMarks& device_marks() const;

  Progress progress() const;
  /// Called between steps. `steps`: restore the count of steps, too. It has to be the same on every rank.
  void set_progress(const Progress& progress, bool steps = true) const;

 private:
  std::shared_ptr<detail::State> state_;
};

}  // namespace lockstep::ddp
