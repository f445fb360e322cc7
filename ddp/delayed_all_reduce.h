// Implements the options delay_all_reduce_named_params and param_to_hook_all_reduce: the gradients of the named
// parameters lie in one flat buffer. It is reduced in one piece when the hooked parameter has its gradient,
// independently of the Reducer and its buckets.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <vector>

#include "ddp/options.h"
#include "ddp/step/accumulators.h"
#include "ddp/training_group.h"

namespace lockstep::ddp::detail {

class DelayedAllReduce {
 public:
  /// Broadcasts the delayed parameters from rank 0 when init_sync is on. Throws ArgumentError if they differ in type or
  /// device.
  DelayedAllReduce(const Options& options, const TrainingGroup& group);
  ~DelayedAllReduce();

  /// Makes the gradients views into the buffer; undefined ones become zeros. `reduces` says whether the next backward
  /// reduces them, over `group`.
  void after_forward(const c10::intrusive_ptr<c10d::ProcessGroup>& group, bool reduces);
  void reset();

 private:
  // The autograd hook needs it. Within a backward it may outlive the wrapper.
  struct Reduction {
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    std::vector<torch::Tensor> parameters;
    torch::Tensor buffer;
    std::vector<torch::Tensor> views;  // of the buffer, one for each parameter
    bool reduces = false;
    void start();
    /// Makes gradients that are not views into the buffer such views.
    void gather_gradients();
  };
  void hook_accumulator();

  torch::Tensor hooked_;
  Accumulator accumulator_;  // of hooked_, in the graph of the last forward; null before the first
  uintptr_t hook_ = 0;
  std::shared_ptr<Reduction> reduction_;
};

}  // namespace lockstep::ddp::detail
