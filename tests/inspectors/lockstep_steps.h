// Steps that tests of lockstep compare between ranks, or with themselves.
#pragma once
#include <ATen/record_function.h>
#include <torch/torch.h>

#include <chrono>
#include <vector>

#include "collectives/dist.h"
#include "inspectors/lockstep/lockstep.h"

namespace lockstep::inspect {

/// With a deadline that a slow machine keeps.
inline LockstepOptions lockstep_options() { return LockstepOptions().deadline(std::chrono::minutes(5)); }

/// A network with BatchNorm.
struct NormNet : torch::nn::Module {
  NormNet() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    second = register_module("second", torch::nn::Linear(8, 3));
    torch::NoGradGuard guard;
    double next = 0.5;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()).mul(0.01).sub(next /= 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

/// A batch of a rank.
inline torch::Tensor step_input(int rank = 0) { return torch::arange(16.0).reshape({4, 4}).mul(0.1).sin().add(rank); }

/// A training step by hand: reduces its gradients where `reduce` says so.
inline void train_step(NormNet& net, torch::optim::Optimizer& optimizer, const torch::Tensor& x, bool reduce = true) {
  optimizer.zero_grad();
  net.forward(x).square().mean().backward();
  if (reduce) {
    for (auto& parameter : net.parameters()) {
      dist::all_reduce(parameter.grad());
      parameter.mutable_grad().div_(dist::get_world_size());
    }
  }
  optimizer.step();
}

/// An operator whose result is off by `by`: a computation that is broken on one rank, or is not deterministic.
inline torch::Tensor broken(const torch::Tensor& x, double by) {
  at::RecordFunction record(at::RecordScope::FUNCTION);
  if (record.isActive()) {
    const std::vector<c10::IValue> inputs = {x};
    record.before("broken", c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  }
  torch::Tensor result;
  {
    const at::RecordFunctionGuard inside(false);
    result = x + by;
  }
  if (record.isActive()) record.setOutputs(std::vector<c10::IValue>{result});
  return result;
}

}  // namespace lockstep::inspect
