// Options delay_all_reduce_named_params and param_to_hook_all_reduce: gradients of the named parameters lie in one flat buffer, which
// is reduced in one piece when the hooked parameter has its gradient, beside the Reducer and its buckets.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <vector>

#include "ddp/state.h"

namespace lockstep::ddp::detail {

class DelayedAllReduce {
 public:
  /// Broadcasts the delayed parameters from rank 0 when init_sync is on.
  explicit DelayedAllReduce(State& state);
  ~DelayedAllReduce();

  /// Makes the gradients views into the buffer, zeros where they had been set to none. `reduces`: whether the backward to come
  /// reduces them, over `group`.
  void after_forward(const c10::intrusive_ptr<c10d::ProcessGroup>& group, bool reduces);
  void reset();

 private:
  // What the autograd hook needs. It may outlive the wrapper, within a backward.
  struct Reduction {
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    std::vector<torch::Tensor> parameters;
    torch::Tensor buffer;
    std::vector<torch::Tensor> views;  // of the buffer, one a parameter
    bool reduces = false;
    void start();
    /// Makes gradients views into the buffer that are none yet.
    void gather_gradients();
  };
  void hook_accumulator();

  torch::Tensor hooked_;
  Accumulator accumulator_;  // of hooked_, in the graph of the last forward; null before the first
  uintptr_t hook_ = 0;
  std::shared_ptr<Reduction> reduction_;
};

}  // namespace lockstep::ddp::detail
