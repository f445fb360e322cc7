// Replicas for tests to take apart, and what they say of findings.
#pragma once
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    second = register_module("second", torch::nn::Linear(16, 8));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(norm(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

/// The same values on every rank, whatever the generator that all threads share does.
inline std::shared_ptr<Net> equal_net(double offset = 0) {
  auto net = std::make_shared<Net>();
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

inline VerifyOptions quickly() { return VerifyOptions().name("net").deadline(std::chrono::minutes(5)); }

inline std::vector<std::string> names(const Finding& finding) {
  std::vector<std::string> result;
  for (const FindingTensor& each : finding.tensors) result.push_back(each.name);
  return result;
}

/// The one finding of a report; that there is one is expected.
inline Finding only_finding(const Report& report) {
  EXPECT_EQ(report.findings.size(), 1U) << report;
  if (!report.findings.empty()) return report.findings.front();
  Finding none;
  none.tensors.resize(1);
  return none;
}

/// What ranks tell the session, for as long as this lives.
class ToldFindings {
 public:
  ToldFindings() {
    set_finding_sink([this](const Finding& finding) {
      const std::lock_guard lock(mutex_);
      told_.push_back(finding);
    });
  }
  ToldFindings(const ToldFindings&) = delete;
  ToldFindings& operator=(const ToldFindings&) = delete;
  ~ToldFindings() { set_finding_sink({}); }

  std::vector<Finding> all() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Finding> told_;
};

}  // namespace lockstep::inspect
