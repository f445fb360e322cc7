// Implements the option mixed_precision: from forward to the reduction of its bucket, a parameter holds a low-precision
// copy of its values; before and after, it holds the full ones. Gradients are reduced in the reduce type and come out
// in full precision.
#pragma once
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ddp/hooks/comm_hooks.h"
#include "ddp/options.h"
#include "ddp/step/accumulators.h"

namespace lockstep::ddp::detail {

class State;

class LowPrecision : public std::enable_shared_from_this<LowPrecision> {
 public:
  /// Casts the buffers. `state` owns the result, and has it reduce by hook().
  static std::shared_ptr<LowPrecision> install(State& state);
  /// Returns the hook that reduces in low precision.
  CommHook hook();

  /// Makes parameters low-precision before forward; they pass their gradients to the Reducer from here. `grad`: a
  /// backward follows, so gradients that are there become low-precision, too, to be added to.
  void begin_forward(bool grad);
  /// Ends a forward that no backward follows. Parameters that were low before it stay so, for the backward of an
  /// earlier forward.
  void leave_forward();
  bool is_low(const torch::Tensor& variable) const;
  /// Makes full again what is still low-precision. Costs nothing if nothing is.
  void restore();
  /// Called before forward. Throws Error if a low-precision parameter got other memory in the meantime: LibTorch reads
  /// full-precision files as if they held low precision then, so the loaded values are lost.
  void check_not_exchanged();
  torch::Tensor lower_input(const torch::Tensor& input) const;

 private:
  struct Parameter {
    torch::Tensor variable;
    torch::Tensor full, low;  // defined while the variable holds low-precision values
    std::optional<size_t> reducer_index;
    Accumulator accumulator{};  // while it is low, of the low values
  };
  void lower();
  void lower_gradients();
  void restore(Parameter& parameter);
  void gradient_arrived(size_t reducer_index);
  void backward_ended();
  GradFuture reduce(GradBucket& bucket);

  State* state_ = nullptr;  // owns this
  MixedPrecision precision_;
  std::vector<Parameter> parameters_;
  std::unordered_map<const void*, size_t> index_of_;  // in parameters_, by TensorImpl
  bool lowered_ = false;
  bool was_lowered_ = false;  // when the forward that is under way began
  bool restore_queued_ = false;
  bool exchanged_ = false;  // a parameter got other memory while it was low
};

}  // namespace lockstep::ddp::detail
