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

  /// Before forward: parameters that are not yet low-precision become so, and tell the Reducer of their gradients.
  void lower();
  /// Before a forward that a backward follows: gradients that are there become low-precision, too, to be added to.
  void lower_gradients();
  bool is_lowered() const { return lowered_; }
  bool is_low(const torch::Tensor& variable) const;
  /// What is still low-precision becomes full again. Costs nothing where nothing is.
  void restore();
  /// Before forward. Throws where a low-precision parameter was given other memory meanwhile: LibTorch reads full-precision files as if
  /// they held low precision then, so what was loaded can't be kept.
  void check_not_exchanged();
  torch::Tensor lower_input(const torch::Tensor& input) const;

 private:
  struct Parameter {
    torch::Tensor variable;
    torch::Tensor full, low;  // defined while the variable holds low-precision values
    std::optional<size_t> reducer_index;
    Accumulator accumulator{};  // while it is low, of the low values
  };
  void restore(Parameter& parameter);
  void gradient_arrived(size_t reducer_index);
  void backward_ended();
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
