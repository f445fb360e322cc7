// The fake device itself: what a GPU does with streams, events and memory, and training on it.
#include "tests/support/fake_device/fake_device.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <vector>

namespace lockstep::fake {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::Stream side_stream(int index) { return c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(index)); }

torch::Tensor flat(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> parts;
  for (const auto& each : tensors) parts.push_back(each.detach().cpu().flatten());
  return torch::cat(parts);
}

struct Mlp : torch::nn::Module {
  Mlp() {
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 4));
    const torch::NoGradGuard no_grad;
    for (auto& each : parameters())
      each.copy_(torch::arange(each.numel()).reshape(each.sizes()).mul(0.37).sin().mul(0.3));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

/// The parameters after a few steps.
template <typename Optimizer, typename Options>
torch::Tensor trained_on(c10::Device where, const Options& options) {
  Mlp net;
  if (where != torch::kCPU) move_to(net, where);
  Optimizer optimizer(net.parameters(), options);
  const auto x = torch::arange(48.0).reshape({6, 8}).mul(0.1).cos().to(where);
  const auto target = torch::tensor({0, 1, 2, 3, 0, 1}).to(where);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net.forward(x), target).backward();
    torch::nn::utils::clip_grad_norm_(net.parameters(), 1.0);
    optimizer.step();
  }
  return flat(net.parameters());
}

TEST(FakeDevice, HasAName) {
  EXPECT_EQ(device(1), c10::Device("fake:1"));
  EXPECT_EQ(device(1).str(), "fake:1");
  EXPECT_EQ(at::accelerator::deviceCount(), kDevices);
}

TEST(FakeDevice, ComputesAsTheCpu) {
  const auto x = torch::arange(12.0).reshape({3, 4});
  const auto on_device = x.to(device(2));
  EXPECT_TRUE(torch::equal(on_device.cpu(), x));
  EXPECT_TRUE(torch::equal(on_device.t().contiguous().cpu(), x.t()));
  EXPECT_TRUE(torch::equal((on_device.matmul(on_device.t()) * 2.0 + 1).cpu(), x.matmul(x.t()) * 2.0 + 1));
  EXPECT_TRUE(
      torch::equal(on_device.index({torch::tensor({2, 0}).to(device(2))}).cpu(), x.index({torch::tensor({2, 0})})));
  EXPECT_TRUE(torch::equal(on_device.to(torch::kHalf).to(device(3)).cpu(), x.to(torch::kHalf)));
  EXPECT_EQ(on_device.sum().item<double>(), 66);
  EXPECT_EQ(on_device.nonzero().sizes(), (std::vector<int64_t>{11, 2}));
  auto grown = torch::empty({0}, device(2));
  torch::add_out(grown, on_device, on_device);
  EXPECT_TRUE(torch::equal(grown.cpu(), x + x));
  EXPECT_THROW(on_device.matmul(on_device), c10::Error);
  synchronize();
}

TEST(FakeDevice, TrainsWithTheBitsOfTheCpu) {
  for (const Schedule schedule : {Schedule::eager, Schedule::late}) {
    const Scope scope({.schedule = schedule, .poison = true, .delays = {}});
    const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
    EXPECT_TRUE(
        torch::equal(trained_on<torch::optim::SGD>(device(0), sgd), trained_on<torch::optim::SGD>(torch::kCPU, sgd)));
    const auto adam = torch::optim::AdamOptions(0.01).amsgrad(true);
    EXPECT_TRUE(torch::equal(trained_on<torch::optim::Adam>(device(1), adam),
                             trained_on<torch::optim::Adam>(torch::kCPU, adam)));
  }
}

TEST(FakeDevice, GeneratorsAreTheDevicesOwn) {
  torch::manual_seed(1);
  const auto on_cpu = torch::rand({4});
  at::Generator generator = at::globalContext().defaultGenerator(device(0));
  generator.set_current_seed(7);
  const auto first = torch::rand({4}, device(0)).cpu();
  generator.set_current_seed(7);
  EXPECT_TRUE(torch::equal(torch::rand({4}, device(0)).cpu(), first));
  torch::manual_seed(1);
  torch::rand({4}, device(0));
  EXPECT_TRUE(torch::equal(torch::rand({4}), on_cpu));
}

TEST(FakeDevice, AnOperatorIsQueuedAndTheHostGoesOn) {
  const Scope scope({.schedule = Schedule::late, .poison = false, .delays = {}});
  const int64_t before = host_waits();
  const auto sum = torch::ones({4}, device(0)) + 1;
  const auto host = torch::empty({4}, torch::TensorOptions().pinned_memory(true));
  host.copy_(sum, /*non_blocking=*/true);
  EXPECT_EQ(host_waits(), before);
  EXPECT_TRUE(std::isnan(host[0].item<float>())) << "the copy has run, though nobody has waited";
  EXPECT_FALSE(current_stream(0).query());
  current_stream(0).synchronize();
  EXPECT_EQ(host_waits(), before + 1);
  EXPECT_EQ(host[0].item<float>(), 2);
}

TEST(FakeDevice, StreamsAreOrderedByEventsOnly) {
  const Scope scope({});
  auto value = torch::zeros({1}, device(0));
  value.cpu();
  const c10::Stream side = side_stream(0);
  for (const bool waits : {false, true}) {
    value.zero_();
    value.cpu();
    Hold hold(current_stream(0));
    value.fill_(1);
    c10::Event written(kType);
    written.record(current_stream(0));
    EXPECT_FALSE(written.query());
    torch::Tensor seen;
    {
      const c10::StreamGuard guard(side);
      if (waits) written.block(side);
      seen = value.clone();
      if (!waits) side.synchronize();
    }
    hold.release();
    written.synchronize();
    EXPECT_TRUE(written.query());
    side.synchronize();
    EXPECT_EQ(seen.cpu().item<float>(), waits ? 1 : 0);
  }
}

TEST(FakeDevice, EventsMeasureTheStream) {
  const Scope scope({});
  c10::Event begin(kType, c10::EventFlag::BACKEND_DEFAULT), end(kType, c10::EventFlag::BACKEND_DEFAULT);
  begin.record(current_stream(0));
  begin.synchronize();
  Hold hold(current_stream(0));
  end.record(current_stream(0));
  EXPECT_FALSE(end.query());
  EXPECT_THROW((void)begin.elapsedTime(end), c10::Error);
  hold.release();
  end.synchronize();
  EXPECT_GT(begin.elapsedTime(end), 0);
}

TEST(FakeDevice, MemoryIsKeptForStreamsThatAreRecordedAndForNoOthers) {
  const c10::Stream side = side_stream(0);
  for (const bool records : {false, true}) {
    const Scope scope({.schedule = Schedule::eager, .poison = true, .delays = {}});
    auto value = torch::ones({64}, device(0));
    current_stream(0).synchronize();
    torch::Tensor seen;
    Hold hold(side);
    {
      const c10::StreamGuard guard(side);
      seen = value.clone();
      if (records) value.record_stream(side);
    }
    value = torch::Tensor();
    current_stream(0).synchronize();  // the memory is given away here
    hold.release();
    side.synchronize();
    EXPECT_EQ(seen.cpu().isnan().any().item<bool>(), !records);
  }
}

TEST(FakeDevice, AnErrorComesWhenTheHostWaits) {
  const Scope scope({});
  const auto weights = torch::ones({2, 3}, device(0));
  const auto index = torch::tensor({5}).to(device(0));  // valid for shapes alone
  EXPECT_NO_THROW(torch::embedding(weights, index));
  EXPECT_ANY_THROW(synchronize());
  EXPECT_NO_THROW(synchronize());
}

}  // namespace
}  // namespace lockstep::fake
