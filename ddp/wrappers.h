// Which wrapper lives around a module: for those who are given the bare module and must know what becomes of its gradients and
// buffers.
#pragma once
#include <torch/torch.h>

#include <memory>

namespace lockstep::ddp::detail {

struct State;

/// From any thread.
void remember_wrapper(State& state);
void forget_wrapper(const State& state);
/// The wrapper made last around this very module; null where there is none.
std::shared_ptr<State> find_wrapper(const torch::nn::Module& module);

}  // namespace lockstep::ddp::detail
