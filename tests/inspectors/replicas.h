// Replicas for tests to take apart.
#pragma once
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

struct ReplicaNet : torch::nn::Module {
  ReplicaNet() {
    first = register_module("first", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    second = register_module("second", torch::nn::Linear(16, 8));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(norm(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

/// The same values on every rank, whatever the generator that all threads share does.
inline std::shared_ptr<ReplicaNet> equal_net(double offset = 0) {
  auto net = std::make_shared<ReplicaNet>();
  torch::NoGradGuard guard;
  double next = 0.5;
  for (auto& parameter : net->parameters())
    parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()).mul(0.01).add(next++ + offset));
  return net;
}

inline void change(torch::Tensor tensor, const std::function<void(torch::Tensor&)>& how) {
  torch::NoGradGuard guard;
  how(tensor);
}

/// With a deadline that a slow machine keeps.
inline VerifyOptions verify_options() { return VerifyOptions().name("net").deadline(std::chrono::minutes(5)); }

}  // namespace lockstep::inspect
