// Finds the wrapper of a module: for code that has the bare module and must know what becomes of its gradients and
// buffers, and for wrappers that share one.
#pragma once
#include <torch/torch.h>

#include <memory>

namespace lockstep::ddp::detail {

class State;

// All functions are for any thread.
void remember_wrapper(State& state);
void forget_wrapper(const State& state);
/// Returns the last wrapper that was made of this module object; null if there is none.
std::shared_ptr<State> find_wrapper(const torch::nn::Module& module);
/// Whether a wrapper other than `state` has announced a backward in which `parameter` may get a gradient: a wrapper of
/// the same module (a cell that wraps one runs again), or of another module that shares the parameter.
bool is_announced_by_another(const State& state, const torch::Tensor& parameter);

}  // namespace lockstep::ddp::detail
