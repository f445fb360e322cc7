// The outputs of forward go through a node of autograd, so that backward passes it before any parameter.
#pragma once
#include <functional>

#include "ddp/step/tensor_tree.h"

namespace lockstep::ddp::detail {

/// Whether a backward can start from `tensor`.
bool has_graph(const torch::Tensor& tensor);

/// Replaces the outputs that have a graph by those of the node; others stay the objects that they are. Outputs that the
/// loss does not use get undefined gradients instead of zeros, so that their parameters count as unused. `clone`: the
/// new outputs have memory of their own and may be changed in place. Backward calls `on_backward`, which may be empty.
void pass_through_sink(const TensorPointers& outputs, bool clone, std::function<void()> on_backward);

}  // namespace lockstep::ddp::detail
