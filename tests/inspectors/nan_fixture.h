// What tests of nan have in common: memory that is NaN until it is written, and a small network.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

namespace lockstep::inspect {

/// Memory that is NaN until it is written, the worst that a freed block may hold.
class JunkAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = inner_->allocate(bytes);
    if (bytes > 0) std::memset(memory.get(), 0xff, bytes);
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner_->copy_data(to, from, bytes); }
  c10::Allocator* inner() const { return inner_; }

 private:
  c10::Allocator* inner_ = c10::GetCPUAllocator();
};

/// Tests of nan: what is read before it is written is NaN.
class Nan : public ::testing::Test {
 protected:
  Nan() { c10::SetCPUAllocator(&junk_); }
  ~Nan() override { c10::SetCPUAllocator(junk_.inner()); }

 private:
  JunkAllocator junk_;
};

struct ReluNet : torch::nn::Module {
  ReluNet() {
    first = register_module("first", torch::nn::Linear(4, 8));
    second = register_module("second", torch::nn::Linear(8, 3));
    torch::NoGradGuard guard;
    double next = 0.5;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()).mul(0.01).sub(next /= 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

inline torch::Tensor relu_input() { return torch::arange(8.0).reshape({2, 4}).div(8); }

}  // namespace lockstep::inspect
