// nan_watch: the first bad value of each step, with its rank, parameter and step, while training goes on.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "inspectors/nan/nan.h"
#include "inspectors/trace/tensor_names.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/nan_fixture.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(NanWatch, names_rank_parameter_and_step_before_the_reduction) {
  const PublishedFindings published;
  spawn_ranks(3, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<ReluNet>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto watching = nan_watch(net);
    for (int step = 1; step <= 4; ++step) {
      net.zero_grad();
      auto out = net(relu_input());
      if (rank == 1 && step == 3)
        out = out + (out.detach().sub(out) * 0).sqrt().mean();  // sqrt(0): backward alone is bad
      out.square().mean().backward();
      optimizer.step();
    }
    EXPECT_EQ(watching.status().steps, 4);
    EXPECT_EQ(watching.status().gradients, 16);
  });
  ASSERT_EQ(published.all().size(), 1U);
  const Finding finding = published.all()[0];
  EXPECT_EQ(finding.verdict, Verdict::nan);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.step, 3);
  EXPECT_EQ(finding.kind, FindingKind::backward);
  EXPECT_EQ(finding.tensors.at(0).name, "second.bias");
}

// Of the watch's own there have been fewer: it began later.
TEST(NanWatch, counts_steps_as_the_wrapper_does) {
  const PublishedFindings published;
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<ReluNet>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto train = [&](bool bad) {
      net.zero_grad();
      auto out = net(relu_input());
      if (rank == 1 && bad) out = out + (out.detach().sub(out) * 0).sqrt().mean();
      out.square().mean().backward();
      optimizer.step();
    };
    for (int step = 1; step <= 4; ++step) train(false);
    const auto watching = nan_watch(net);
    train(false);
    train(true);
    EXPECT_EQ(net.steps(), 6);
  });
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].kind, FindingKind::backward);
  EXPECT_EQ(published.all()[0].step, 6);
}

TEST(NanWatch, counts_the_step_of_a_loss_as_the_wrapper_does) {
  const PublishedFindings published;
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<ReluNet>());
    for (int step = 1; step <= 2; ++step) net(relu_input()).mean().backward();
    const auto watching = nan_watch(net);
    (net(relu_input()).mean() * (rank == 1 ? NAN : 1)).backward();
  });
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].kind, FindingKind::forward);
  EXPECT_EQ(published.all()[0].step, 3);
}

TEST(NanWatch, names_the_loss) {
  const PublishedFindings published;
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  const auto watching = nan_watch();
  const auto train = [&](double scale) {
    optimizer.zero_grad();
    (weight * scale).exp().sum().backward();
    optimizer.step();
  };
  train(1);
  train(1000);
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].verdict, Verdict::inf);
  EXPECT_EQ(published.all()[0].kind, FindingKind::forward);
  EXPECT_EQ(published.all()[0].step, 2);
  EXPECT_THAT(published.all()[0].message, HasSubstr("the loss, made by sum,"));
}

TEST(NanWatch, names_the_optimizer_and_tells_once_until_all_is_well_again) {
  const PublishedFindings published;
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  const auto watching = nan_watch(weight);
  const auto train = [&](double rate) {
    optimizer.zero_grad();
    (weight * 1e3).sum().backward();
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(rate);
    optimizer.step();
  };
  train(1e38);
  train(1e38);
  EXPECT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].kind, FindingKind::optimizer);
  {
    torch::NoGradGuard guard;
    weight.zero_();
  }
  train(0.1);
  train(0.1);
  train(1e38);
  EXPECT_EQ(published.all().size(), 2U);
  EXPECT_EQ(watching.status().bad_steps, 3);
  EXPECT_THAT(nan_status(), HasSubstr("off"));
  nan_on({});
  train(0.1);
  EXPECT_THAT(nan_status(), HasSubstr("on: 1 step, 1 of them bad; checked 1 loss, 1 gradient and 1 update"));
  nan_off();
}

// Optimizers of Python write all parameters by one operator, which returns nothing: by default on a GPU.
TEST(NanWatch, optimizers_that_write_lists) {
  for (const bool fused : {false, true}) {
    const PublishedFindings published;
    std::vector<torch::Tensor> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(torch::ones({3}).set_requires_grad(true));
    const auto train = [&](double rate, bool bad_reduction) {
      for (const auto& each : weights) each.mutable_grad() = torch::Tensor();
      torch::stack({weights[0], weights[1], weights[2]}).mul(1e3).sum().backward();
      const torch::NoGradGuard guard;
      std::vector<torch::Tensor> gradients;
      for (const auto& each : weights) gradients.push_back(each.grad());
      if (bad_reduction) gradients[1].fill_(std::nan(""));
      if (fused)
        at::_fused_sgd_(weights, gradients, {}, 0, 0, rate, 0, false, false, true);
      else
        at::_foreach_add_(weights, gradients, -rate);
    };
    const auto watching = nan_watch();
    train(0.1, false);
    EXPECT_EQ(published.all().size(), 0U);
    train(0.1, true);
    ASSERT_EQ(published.all().size(), 1U);
    EXPECT_THAT(published.all()[0].message, HasSubstr("after the reduction"));
    weights[1].detach().fill_(1);
    train(0.1, false);
    train(1e38, false);
    ASSERT_EQ(published.all().size(), 2U);
    EXPECT_EQ(published.all()[1].kind, FindingKind::optimizer);
    EXPECT_THAT(published.all()[1].message, HasSubstr(fused ? "written by _fused_sgd_" : "written by _foreach_add_"));
    EXPECT_EQ(watching.status().steps, 4);
    EXPECT_EQ(watching.status().bad_steps, 2);
  }
}

TEST(NanWatch, an_update_that_is_written_as_an_out) {
  const PublishedFindings published;
  auto weight = torch::ones({3}).set_requires_grad(true);
  const auto watching = nan_watch(weight);
  (weight * 1e3).sum().backward();
  const torch::NoGradGuard guard;
  torch::sub_out(weight, weight, weight.grad(), 1e38);
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].kind, FindingKind::optimizer);
  EXPECT_EQ(watching.status().parameters, 1);
}

// Averages of parameters, and clipping, go over lists as well.
TEST(NanWatch, an_operator_on_other_lists_is_no_update) {
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 0.1);
  const auto watching = nan_watch();
  weight.sum().backward();
  optimizer.step();
  const torch::NoGradGuard guard;
  at::_foreach_mul_({torch::ones({3})}, 0.5);
  EXPECT_EQ(watching.status().parameters, 1);
}

TEST(NanWatch, names_can_be_told_later) {
  const PublishedFindings published;
  nan_on({});
  auto weight = torch::ones({3}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, 1e38);
  TensorNames names;
  names.learn("weight", weight);
  nan_names(names);
  (weight * 1e3).sum().backward();
  optimizer.step();
  nan_off();
  nan_names(names);
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].tensors.at(0).name, "weight");
}

TEST(NanWatch, training_is_bit_identical) {
  const auto train = [](bool watched) {
    std::vector<torch::Tensor> result;
    std::mutex mutex;
    spawn_ranks(2, [&](int rank, int) {
      auto net = ddp::DistributedDataParallel(std::make_shared<ReluNet>());
      torch::optim::Adam optimizer(net.parameters(), 1e-2);
      std::unique_ptr<NanWatch> watching;
      if (watched) watching = std::make_unique<NanWatch>(nan_watch(net));
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        net(relu_input() + rank + step).square().mean().backward();
        optimizer.step();
      }
      const std::lock_guard lock(mutex);
      if (rank == 0)
        for (auto& each : net.parameters()) result.push_back(each.detach().clone());
    });
    return result;
  };
  const auto watched = train(true), plain = train(false);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(watched[i], plain[i]));
}

}  // namespace
}  // namespace lockstep::inspect
