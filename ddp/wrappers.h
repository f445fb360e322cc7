// Which wrapper lives around a module: for those who are given the bare module and must know what becomes of its gradients and
// buffers, and for wrappers that share one.
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
/// Whether a wrapper other than `state` has announced a backward in which `parameter` may get a gradient: around the same module, as
/// when a cell that wraps one runs again, or around another that shares the parameter.
bool is_announced_by_another(const State& state, const torch::Tensor& parameter);

}  // namespace lockstep::ddp::detail
