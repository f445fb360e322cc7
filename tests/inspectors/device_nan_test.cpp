// nan_watch on the fake device: the checks are queued on the device's streams, and no step waits for them.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "inspectors/device/late_flag.h"
#include "inspectors/nan/nan.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/nan_fixture.h"
#include "tests/inspectors/reports.h"
#include "tests/support/fake_device/fake_device.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using fake::Schedule;
using ::testing::HasSubstr;

class NanOnDevices : public ::testing::Test {
 protected:
  NanOnDevices() { fake::use_device_functions(true); }
  ~NanOnDevices() override { fake::use_device_functions(false); }
};

/// sqrt(0) * 0: the value is finite, its gradient NaN.
torch::Tensor finite_with_nan_gradient(const torch::Tensor& weight) { return ((weight - weight.detach()) * 0).sqrt(); }

TEST_F(NanOnDevices, no_step_waits_and_the_step_is_named) {
  for (const bool late : {true, false}) {
    const fake::Scope scope({.schedule = late ? Schedule::late : Schedule::eager, .poison = !late, .delays = {}});
    const PublishedFindings published;
    auto weight = torch::ones({3}, fake::device(0)).set_requires_grad(true);
    torch::optim::SGD optimizer({weight}, 0.1);
    TensorNames names;
    names.learn("weight", weight);
    NanWatch watching(names);
    const int64_t waits = fake::host_waits(), checks = fake::sentinels_queued();
    for (int step = 1; step <= 4; ++step) {
      optimizer.zero_grad();
      auto loss = weight.square().sum();
      if (step == 3) loss = loss + finite_with_nan_gradient(weight).sum();
      loss.backward();
      optimizer.step();
    }
    // In the late schedule nothing has run so far.
    if (late) {
      EXPECT_EQ(fake::host_waits(), waits);
      EXPECT_EQ(published.all().size(), 0U);
    }
    // Each step one for the loss and the gradient, and one for the update. The last update's is queued by status().
    EXPECT_EQ(fake::sentinels_queued() - checks, 7);
    const NanWatchStatus status = watching.status();
    EXPECT_EQ(status.steps, 4);
    EXPECT_EQ(status.gradients, 4);
    EXPECT_EQ(status.bad_steps, 2);  // the parameter is NaN from then on
    ASSERT_EQ(published.all().size(), 1U);
    const Finding finding = published.all()[0];
    EXPECT_EQ(finding.kind, FindingKind::backward);
    EXPECT_EQ(finding.verdict, Verdict::nan);
    EXPECT_EQ(finding.step, 3);
    EXPECT_EQ(finding.tensors.at(0).name, "weight");
    EXPECT_THAT(finding.message, HasSubstr("the gradient of weight, before the reduction, became NaN in step 3"));
  }
}

TEST_F(NanOnDevices, a_finding_comes_during_training) {
  const fake::Scope scope({});
  const PublishedFindings published;
  auto weight = torch::ones({3}, fake::device(0)).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  const auto watching = nan_watch();
  for (int step = 1; step <= 2; ++step) {
    optimizer.zero_grad();
    (weight.sum() + finite_with_nan_gradient(weight).sum()).backward();
    fake::synchronize();
    optimizer.step();
  }
  EXPECT_EQ(published.all().size(), 1U);
}

TEST_F(NanOnDevices, the_loss_and_the_optimizer_are_named) {
  const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
  const PublishedFindings published;
  auto weight = torch::ones({3}, fake::device(1)).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  {
    const auto watching = nan_watch();
    optimizer.zero_grad();
    (weight * 1000).exp().sum().backward();
    optimizer.step();
  }
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].kind, FindingKind::forward);
  EXPECT_EQ(published.all()[0].verdict, Verdict::inf);
  EXPECT_THAT(published.all()[0].message, HasSubstr("the loss, made by sum,"));

  auto other = torch::ones({3}, fake::device(1)).set_requires_grad(true);
  torch::optim::SGD steep({other}, 1e38);
  {
    const auto watching = nan_watch();
    (other * 1e3).sum().backward();
    steep.step();
  }
  ASSERT_EQ(published.all().size(), 2U);
  EXPECT_EQ(published.all()[1].kind, FindingKind::optimizer);
  EXPECT_THAT(published.all()[1].message, HasSubstr("written by add_ from a finite gradient, became Inf in step 1"));
}

// As optimizers of Python do on a GPU: the parameters are written twice, by operators that return nothing.
TEST_F(NanOnDevices, optimizers_that_write_lists) {
  const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
  const PublishedFindings published;
  std::vector<torch::Tensor> weights;
  for (int i = 0; i < 3; ++i) weights.push_back(torch::ones({3}, fake::device(0)).set_requires_grad(true));
  const auto train = [&](double rate, bool bad_reduction) {
    for (const auto& each : weights) each.mutable_grad() = torch::Tensor();
    (weights[0] + weights[1] + weights[2]).mul(1e3).sum().backward();
    const torch::NoGradGuard guard;
    std::vector<torch::Tensor> gradients;
    for (const auto& each : weights) gradients.push_back(each.grad());
    if (bad_reduction) gradients[1].fill_(std::nan(""));
    at::_foreach_mul_(weights, 0.99);
    at::_foreach_add_(weights, gradients, -rate);
  };
  {
    const auto watching = nan_watch();
    train(0.1, false);
    train(0.1, true);
    EXPECT_EQ(watching.status().bad_steps, 1);
    EXPECT_EQ(watching.status().parameters, 6) << "each once a step";
  }
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].step, 2);
  EXPECT_THAT(published.all()[0].message, HasSubstr("after the reduction"));
  for (const auto& each : weights) each.detach().fill_(1);
  {
    const auto watching = nan_watch();
    train(1e38, false);
  }
  ASSERT_EQ(published.all().size(), 2U);
  EXPECT_EQ(published.all()[1].kind, FindingKind::optimizer);
  EXPECT_THAT(published.all()[1].message, HasSubstr("written by _foreach_add_ from a finite gradient"));
}

TEST_F(NanOnDevices, gradients_that_are_filled_after_the_update) {
  const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
  const PublishedFindings published;
  auto weight = torch::ones({3}, fake::device(0)).set_requires_grad(true);
  {
    const auto watching = nan_watch();
    weight.sum().backward();
    const torch::NoGradGuard guard;
    weight.mutable_grad().mul_(std::nan(""));
    weight.add_(weight.grad(), -0.1);
    weight.mutable_grad().fill_(0);
  }
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_THAT(published.all()[0].message, HasSubstr("after the reduction"));
}

// Gradients are made on a stream of their own, and the sentinel is slow. What comes after backward, on the program's
// stream, overwrites the gradient or frees it.
TEST_F(NanOnDevices, gradients_that_are_overwritten_or_freed_at_once) {
  for (const bool frees : {false, true}) {
    const fake::Scope scope(
        {.schedule = Schedule::eager, .poison = true, .delays = {{"sentinel", std::chrono::milliseconds(30)}}});
    const PublishedFindings published;
    auto weight = torch::ones({3}, fake::device(0)).set_requires_grad(true);
    fake::synchronize();
    const c10::Stream side = c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getNewStream(fake::device(0));
    const auto watching = nan_watch();
    for (int step = 1; step <= 2; ++step) {
      torch::Tensor loss;
      {
        const c10::StreamGuard guard(side);
        const auto bad = step == 1 ? finite_with_nan_gradient(weight).sum() : weight.sum();
        loss = weight.sum() + bad;
      }
      loss.backward();
      const torch::NoGradGuard no_grad;
      if (frees)
        weight.mutable_grad() = torch::Tensor();
      else
        weight.mutable_grad().zero_();
      torch::ones({3}, fake::device(0)).add_(1);
    }
    EXPECT_EQ(watching.status().bad_steps, 1);
    ASSERT_EQ(published.all().size(), 1U) << (frees ? "freed" : "overwritten");
    EXPECT_EQ(published.all()[0].step, 1);
  }
}

// Memory of a third stream, which neither the check nor the program's stream is on.
TEST_F(NanOnDevices, a_check_keeps_the_memory_that_it_reads) {
  const fake::Scope scope(
      {.schedule = Schedule::eager, .poison = true, .delays = {{"sentinel", std::chrono::milliseconds(30)}}});
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  torch::Tensor value;
  {
    const c10::StreamGuard on_another(guard.getNewStream(fake::device(0)));
    value = torch::ones({64}, fake::device(0));
  }
  fake::synchronize();
  const LateFlag flag(*device_functions(c10::DeviceType::PrivateUse1), at::TensorList(value),
                      guard.getNewStream(fake::device(0)));
  value = torch::Tensor();
  EXPECT_EQ(flag.read(), std::nullopt);
}

TEST_F(NanOnDevices, a_trace_finds_what_it_finds_on_the_host) {
  const auto step = [](torch::Tensor x) {
    auto scaled = x.clone();
    scaled.mul_(2);  // in place, where the range of the values before is kept
    return scaled.sub(torch::full_like(x, 8)).log().sum();
  };
  const auto traced = [&](c10::Device device) {
    const fake::Scope scope({.schedule = Schedule::late, .poison = true, .delays = {}});
    const auto x = torch::arange(6.0).reshape({2, 3}).to(device);
    return only_finding(replay([&] { return step(x); }));
  };
  const Finding on_host = traced(torch::kCPU), on_device = traced(fake::device(0));
  EXPECT_EQ(on_device.op->name, "log");
  EXPECT_THAT(on_device.message, HasSubstr(on_host.message));  // the fake device adds the argument `out`
  ASSERT_EQ(on_device.tensors.size(), on_host.tensors.size());
  EXPECT_EQ(on_device.tensors[0].count, on_host.tensors[0].count);
  EXPECT_EQ(on_device.tensors[0].first, on_host.tensors[0].first);
}

// However many tensors an operator has, they are read in one launch before it and one after it.
TEST_F(NanOnDevices, a_trace_reads_the_tensors_of_an_operator_together) {
  const fake::Scope scope({});
  const auto device = fake::device(0);
  std::vector<torch::Tensor> many;
  for (int i = 0; i < 20; ++i) many.push_back(torch::ones({4}, device));
  begin_nan_trace();
  const int64_t before = fake::fingerprints_queued();
  const auto all = torch::stack(many);
  const int64_t launches = fake::fingerprints_queued() - before;
  EXPECT_EQ(end_nan_trace({}).findings.at(0).verdict, Verdict::ok);
  // stack calls others (cat, views) with the same tensors.
  EXPECT_GE(launches, 2);
  EXPECT_LT(launches, 20);
}

/// Two ranks with a device each; four steps, of which `spoil` changes some outputs.
void train_on_devices(const std::function<torch::Tensor(int rank, int step, const torch::Tensor& out)>& spoil,
                      const std::function<void(int rank, const std::vector<Finding>& findings)>& check,
                      bool compresses = false) {
  testing::spawn_processes(
      2,
      [&](int rank, int) {
        fake::use_device_functions(true);
        c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).setDevice(fake::device(rank));
        for (const Schedule schedule : {Schedule::late, Schedule::eager}) {
          const fake::Scope scope({.schedule = schedule, .poison = true, .delays = {}});
          const PublishedFindings published;
          auto net = std::make_shared<ReluNet>();
          fake::move_to(*net, fake::device(rank));
          auto wrapped = ddp::DistributedDataParallel(net, ddp::Options().gradient_as_bucket_view(true));
          if (compresses) wrapped.register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
          torch::optim::SGD optimizer(wrapped.parameters(), 0.1);
          auto watching = std::make_unique<NanWatch>(nan_watch(wrapped));
          for (int step = 1; step <= 4; ++step) {
            optimizer.zero_grad();
            spoil(rank, step, wrapped(relu_input().to(fake::device(rank)))).square().mean().backward();
            optimizer.step();
          }
          EXPECT_EQ(watching->status().steps, 4);
          dist::barrier();  // all have read their flags
          watching.reset();
          check(rank, published.all());
        }
      },
      testing::RankOptions{.backend = "gloo_fake"});
}

TEST_F(NanOnDevices, one_rank_with_a_bad_gradient_is_named_by_itself) {
  train_on_devices(
      [](int rank, int step, const torch::Tensor& out) {
        if (rank != 1 || step != 3) return out;
        return out + ((out.detach() - out) * 0).sqrt().mean();
      },
      [](int rank, const std::vector<Finding>& findings) {
        ASSERT_EQ(findings.size(), rank == 1 ? 1U : 0U) << "rank " << rank;
        if (rank == 0) return;
        EXPECT_EQ(findings[0].ranks, RankSet{1});
        EXPECT_EQ(findings[0].step, 3);
        EXPECT_THAT(findings[0].message, HasSubstr("before the reduction"));
      });
}

// Gradients of 1e8 are finite until the reduction, which has them as float16.
TEST_F(NanOnDevices, an_overflow_in_the_reduction_is_named_once) {
  train_on_devices([](int, int step, const torch::Tensor& out) { return step == 2 ? out * 1e4 : out; },
                   [](int rank, const std::vector<Finding>& findings) {
                     ASSERT_EQ(findings.size(), rank == 0 ? 1U : 0U) << "rank " << rank;
                     if (rank != 0) return;
                     EXPECT_EQ(findings[0].ranks, (RankSet{0, 1}));
                     EXPECT_EQ(findings[0].step, 2);
                     EXPECT_THAT(findings[0].message,
                                 HasSubstr("after the reduction (finite on every rank before it) became"));
                   },
                   /*compresses=*/true);
}

}  // namespace
}  // namespace lockstep::inspect
