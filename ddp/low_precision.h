// Option mixed_precision: from forward to the reduction of its bucket a parameter holds a low-precision copy of its values; before
// and after, it holds the full ones. Gradients are reduced in the reduce type and come out in full precision.
#pragma once
#include <torch/torch.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "ddp/state.h"

namespace lockstep::ddp::detail {

class LowPrecision : public std::enable_shared_from_this<LowPrecision> {
 public:
  /// Casts the buffers and registers the hook that reduces in low precision.
  static std::shared_ptr<LowPrecision> install(State& state);

  /// Before forward: parameters (and gradients that are there) become low-precision, and tell the Reducer of their gradients.
  void lower();
  /// Whatever is still low-precision becomes full again. Costs nothing where nothing is.
  void restore();
  /// The same. Throws where a parameter was given other memory meanwhile: LibTorch reads full-precision files as if they held low
  /// precision then, so what was loaded can't be kept.
  void restore_before_forward();
  torch::Tensor lower_input(const torch::Tensor& input) const;

 private:
  struct Parameter {
    torch::Tensor variable;
    torch::Tensor full, low;  // defined while the variable holds low-precision values
    std::optional<size_t> reducer_index;
    Accumulator accumulator{};
    uintptr_t hook = 0;
  };
  void restore(Parameter& parameter);
  void gradient_arrived(size_t reducer_index);
  GradFuture reduce(GradBucket& bucket);

  State* state_ = nullptr;  // owns this
  MixedPrecision precision_;
  std::vector<Parameter> parameters_;
  std::unordered_map<const void*, size_t> places_;  // TensorImpl → place in parameters_
  bool lowered_ = false;
  bool restore_queued_ = false;
  bool exchanged_ = false;  // a parameter's memory, while it was low
};

}  // namespace lockstep::ddp::detail
