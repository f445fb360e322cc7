// Holds the autograd nodes that add up the gradients of parameters, and the hooks on them. A parameter that is loaded
// gets a new node, which has neither the Reducer's hook nor the wrapper's. restore() gives it its old node back.
#pragma once
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace lockstep::ddp::detail {

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));

/// The parameters are those of the Reducer, in its order.
class Accumulators {
 public:
  Accumulators() = default;
  /// Takes the hooks off.
  ~Accumulators();
  Accumulators(const Accumulators&) = delete;
  Accumulators& operator=(const Accumulators&) = delete;

  /// Keeps the nodes that the parameters have now.
  void remember(const std::vector<torch::Tensor>& parameters);
  /// Gives parameter number `index` its node back.
  void restore(size_t index, const torch::Tensor& parameter) const;
  /// Calls `on_gradient` with the index of each parameter that gets a gradient. Only the first call has an effect.
  void watch(const std::vector<torch::Tensor>& parameters, const std::function<void(size_t)>& on_gradient);

 private:
  std::vector<Accumulator> nodes_;
  std::vector<std::pair<Accumulator, uintptr_t>> hooks_;
};

}  // namespace lockstep::ddp::detail
