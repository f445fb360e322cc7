// Data-parallel training from scratch, as one writes it to understand it: every rank has a replica, and after backward
// the gradients become their mean over all ranks. No buckets, no overlap: DistributedDataParallel has those.
//
//   auto net = ddp::SimpleDistributedDataParallel(Net());
//   loss_of(net(x)).backward();
//   net.sync_gradients();
//   optimizer.step();
#pragma once
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>

#include "collectives/dist.h"
#include "ddp/helpers.h"
#include "protocol/error.h"

namespace lockstep::ddp {

template <class M>
class SimpleDistributedDataParallel {
 public:
  /// Checks that every replica begins with rank 0's values. Collective. Throws Error on the ranks whose replica does
  /// not.
  explicit SimpleDistributedDataParallel(std::shared_ptr<M> module) : module_(std::move(module)) {
    const detail::Construction construction;
    if (construction.is_alone()) return;
    std::string different;
    for (const auto& parameter : module_->named_parameters()) {
      auto rank0 = parameter->detach().clone();
      dist::broadcast(rank0, 0);
      if (different.empty() && !torch::equal(rank0, *parameter)) different = parameter.key();
    }
    if (different.empty()) return;  // after the loop: the other ranks need all of its broadcasts
    throw Error("rank " + std::to_string(dist::get_rank()) + ": parameter " + different + " differs from rank 0's. " +
                "Call set_seed(n) with the same n on every rank before making the model");
  }
  explicit SimpleDistributedDataParallel(const torch::nn::ModuleHolder<M>& holder)
      : SimpleDistributedDataParallel(holder.ptr()) {}
  explicit SimpleDistributedDataParallel(M module)
      : SimpleDistributedDataParallel(std::make_shared<M>(std::move(module))) {}

  template <class... A>
  auto operator()(A&&... inputs) {
    return module_->forward(std::forward<A>(inputs)...);
  }
  void train() { module_->train(); }
  void eval() { module_->eval(); }

  /// Makes every gradient its mean over all ranks. Collective. Called between backward and the optimizer's step.
  void sync_gradients() {
    if (!do_sync_) return;
    for (auto& parameter : module_->parameters()) {
      if (!parameter.grad().defined()) continue;
      dist::all_reduce(parameter.grad(), dist::ReduceOp::SUM);
      parameter.mutable_grad() /= dist::get_world_size();
    }
  }

  // Serves gradient accumulation: only the last micro-batch of a step needs the mean.
  void enable_grad_sync() { do_sync_ = true; }
  void disable_grad_sync() { do_sync_ = false; }
  /// While the returned value lives, sync_gradients does nothing; then it does again what it did before.
  auto no_sync() {
    return std::shared_ptr<void>(nullptr,
                                 [this, before = std::exchange(do_sync_, false)](void*) { do_sync_ = before; });
  }

  M* operator->() { return module_.get(); }
  const std::shared_ptr<M>& module() const { return module_; }
  /// Whether sync_gradients would reduce.
  bool syncs_gradients() const { return do_sync_; }

 private:
  std::shared_ptr<M> module_;
  bool do_sync_ = true;
};

template <class H>
  requires requires { typename H::ContainedType; }
SimpleDistributedDataParallel(H) -> SimpleDistributedDataParallel<typename H::ContainedType>;

}  // namespace lockstep::ddp
