// Post-local SGD (Lin, Stich, Patel, Jaggi, ICLR 2020, arXiv 1808.07217): gradients are reduced over all ranks in the
// first steps, and over a subgroup (or not at all) after them; the models are averaged over all ranks every few steps.
//
//   const auto options = ddp::PostLocalSGDOptions().subgroup(node).start_localSGD_iter(100);
//   auto state = std::make_shared<ddp::PostLocalSGDState>(options);
//   net.register_comm_hook(ddp::post_localSGD_hook(state));
//   ddp::PeriodicModelAverager averager(/*period=*/4, /*warmup_steps=*/100);
//   …
//   optimizer.step();
//   averager.average_parameters(net->parameters());
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/hooks/comm_hooks.h"

namespace lockstep::ddp {

struct PostLocalSGDOptions {
  /// All ranks. Empty: the default group.
  TORCH_ARG(c10::intrusive_ptr<c10d::ProcessGroup>, process_group) = {};
  /// Ranks that still reduce gradients among themselves, for example those of one node.
  TORCH_ARG(c10::intrusive_ptr<c10d::ProcessGroup>, subgroup) = {};
  /// The number of first steps that are reduced over all ranks.
  TORCH_ARG(int64_t, start_localSGD_iter) = 0;
  /// Whether gradients are reduced over the subgroup after the first steps, or stay on their rank.
  TORCH_ARG(bool, post_local_gradient_allreduce) = true;
};

class PostLocalSGDState {
 public:
  /// Throws ArgumentError without a subgroup if post_local_gradient_allreduce needs one.
  explicit PostLocalSGDState(PostLocalSGDOptions options);
  /// Returns the steps so far. After a restart it is the smallest count of any rank: a failed step does not count.
  int64_t iter() const { return iter_; }
  /// Does the hook's work on one bucket. Collective.
  GradFuture reduce(GradBucket& bucket);
  /// Called when the wrapper starts afresh (CommHook::restart). Local.
  void restart() { restarted_ = true; }

 private:
  PostLocalSGDOptions options_;
  int64_t iter_ = 0;
  bool restarted_ = false;  // ranks have yet to agree on iter_
};

CommHook post_localSGD_hook(const std::shared_ptr<PostLocalSGDState>& state);

/// Averages parameters over all ranks in every period-th call from call number `warmup_steps` on.
class PeriodicModelAverager {
 public:
  /// Throws ArgumentError for a period below 1 or negative warm-up.
  explicit PeriodicModelAverager(int64_t period, int64_t warmup_steps = 0,
                                 c10::intrusive_ptr<c10d::ProcessGroup> group = {});
  /// Call it after each optimizer step. Parameters with a gradient become their mean, in one all_reduce per type.
  /// Collective in the calls that average, and in the first one after restart(). Returns whether this call averaged. If
  /// averaging fails, the call is not counted.
  bool average_parameters(const std::vector<torch::Tensor>& parameters);
  /// Returns the calls so far. After a restart it is the smallest count of any rank: a failed step does not count.
  int64_t step() const { return step_; }
  /// Starts afresh after a step that failed on some ranks only: call it on every rank, together with the wrapper's
  /// reset(). If the ranks were reconnected (dist::regroup, which a session runs before the cell that follows a failed
  /// one), it happens by itself. Local.
  void restart() { restarted_ = true; }

 private:
  static void average(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const std::vector<torch::Tensor>& parameters);

  int64_t period_, warmup_steps_, step_ = 0;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int64_t generation_ = 0;  // of the group's connections, when the ranks last agreed on step_
  bool restarted_ = false;  // ranks have yet to agree on step_
};

}  // namespace lockstep::ddp
