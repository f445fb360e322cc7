// Networks whose gradients tests take apart, and what they expect of grads.
#pragma once
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>

#include "collectives/dist.h"
#include "inspectors/grads/grads.h"

namespace lockstep::inspect::gradients {

/// A network with a layer, `spare`, that forward can leave out.
struct SpareNet : torch::nn::Module {
  SpareNet() {
    first = register_module("first", torch::nn::Linear(6, 10));
    second = register_module("second", torch::nn::Linear(10, 3));
    spare = register_module("spare", torch::nn::Linear(10, 3));
    torch::NoGradGuard guard;
    double next = 0.5;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()).mul(0.7).add(next++).sin().mul(0.3));
  }
  torch::Tensor forward(const torch::Tensor& x, bool with_spare = true) {
    const torch::Tensor hidden = torch::tanh(first(x));
    return with_spare ? second(hidden) + spare(hidden) : second(hidden);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr};
};

/// Of this rank and step, without the generator, which threads share.
inline torch::Tensor batch(int rank, int step = 0) {
  return torch::arange(24.0).reshape({4, 6}).mul(0.37).add(rank * 1.3 + step * 2.1).sin();
}
inline torch::Tensor loss_of(const torch::Tensor& output) { return (output - 0.25).pow(2).mean(); }

/// With a deadline that a slow machine keeps.
inline GradsOptions grads_options() {
  return GradsOptions().name("net").deadline(std::chrono::minutes(5)).publish(false);
}

inline void all_reduce_gradients(torch::nn::Module& net, double divisor) {
  for (auto& parameter : net.parameters()) {
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    dist::all_reduce(parameter.grad());
    parameter.mutable_grad() /= divisor;
  }
}

/// No other finding than ok.
inline void expect_fine(const Report& report) {
  ASSERT_EQ(report.findings.size(), 1U) << report;
  EXPECT_EQ(report.findings[0].verdict, Verdict::ok) << report;
  EXPECT_EQ(report.findings[0].severity, Severity::note);
  EXPECT_EQ(report.findings[0].inspector, "grads");
}

inline void expect_one(const Report& report, Verdict verdict, const RankSet& ranks, const std::string& text,
                       Severity severity = Severity::fault) {
  ASSERT_EQ(report.findings.size(), 1U) << report;
  EXPECT_EQ(report.findings[0].verdict, verdict) << report;
  EXPECT_EQ(report.findings[0].ranks, ranks) << report;
  EXPECT_EQ(report.findings[0].severity, severity) << report;
  EXPECT_THAT(report.findings[0].message, ::testing::HasSubstr(text));
}

}  // namespace lockstep::inspect::gradients
