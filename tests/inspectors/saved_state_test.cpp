// SavedState: after restore(), training goes on bit by bit as if nothing had been run.
#include "inspectors/subject/saved_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "lockstep/ddp.h"
#include "tests/ddp/models.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using testing::spawn_ranks;

/// Everything of a module that training changes, as bytes.
std::string training_state(const torch::nn::Module& module) {
  std::string bytes;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  };
  for (const auto& each : module.parameters()) {
    add(each);
    if (each.grad().defined()) add(each.grad());
    bytes += each.requires_grad() ? 'g' : '-';
  }
  for (const auto& each : module.buffers()) add(each);
  return bytes;
}

template <typename Net, typename Optimizer>
void train_steps(Net& net, Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    torch::dropout(net(torch::randn({4, 8})), 0.3, true).pow(2).mean().backward();
    optimizer.step();
  }
}

/// Two steps, then `look` or nothing, then two more: what becomes of the model.
template <typename Make>
std::string trained(const Make& make, bool look) {
  torch::manual_seed(3);
  test::ConvNet net;
  const auto optimizer = make(net->parameters());
  const auto step = [&](int steps) { train_steps(net, *optimizer, steps); };
  step(2);
  if (look) {
    const SavedState state(net, optimizer);
    for (int round = 0; round < 2; ++round) {
      step(3);
      net->eval();
      net->conv1->weight.set_requires_grad(false);
      for (auto& group : optimizer->param_groups()) group.options().set_lr(10);
      torch::rand({5});
      state.restore();
    }
  }
  step(2);
  return training_state(*net) + (net->is_training() ? "train" : "eval");
}

template <typename Make>
void expect_no_trace(const Make& make) {
  EXPECT_EQ(trained(make, true), trained(make, false));
  EXPECT_NE(trained(make, false), "");
}

TEST(SavedState, TrainingGoesOnAsIfNothingHadBeenRun) {
  at::set_num_threads(1);  // the model is small
  using namespace torch::optim;
  using Parameters = std::vector<at::Tensor>;
  expect_no_trace([](Parameters p) { return std::make_unique<SGD>(p, SGDOptions(0.05).momentum(0.9)); });
  expect_no_trace([](Parameters p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); });
  expect_no_trace([](Parameters p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01)); });
  expect_no_trace([](Parameters p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).momentum(0.5)); });
  expect_no_trace([](Parameters p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.01)); });
}

TEST(SavedState, AStateMadeBeforeTheFirstStepTakesTheOptimizersBack) {
  torch::manual_seed(1);
  test::Mlp net;
  torch::optim::Adam optimizer(net->parameters());
  const SavedState state(net, optimizer);
  train_steps(net, optimizer, 2);
  EXPECT_FALSE(optimizer.state().empty());
  state.restore();
  EXPECT_TRUE(optimizer.state().empty());
  EXPECT_FALSE(net->fc1->weight.grad().defined());
}

TEST(SavedState, TensorsContainersAndValuesComeBack) {
  torch::Tensor tensor = torch::arange(6.0);
  const torch::Tensor same = tensor, view = tensor.slice(0, 2, 4);
  std::vector<torch::Tensor> list = {torch::zeros({2})};
  int count = 3;
  std::string text = "before";
  std::map<std::string, torch::Tensor> named = {{"a", torch::ones({2})}};
  const SavedState state(tensor, list, count, text, named);
  tensor.add_(1);
  tensor = torch::zeros({1});
  list[0].fill_(7);
  list.push_back(torch::ones({1}));
  count = 4;
  text = "after";
  named["a"].zero_();
  state.restore();
  EXPECT_TRUE(tensor.is_same(same));
  EXPECT_TRUE(torch::equal(tensor, torch::arange(6.0)));
  EXPECT_TRUE(torch::equal(view, torch::tensor({2.0, 3.0})));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].sum().item<double>(), 0);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(text, "before");
  EXPECT_EQ(named["a"].sum().item<double>(), 2);
}

TEST(SavedState, ViewsThatOverlapAndVersionsAreLeftAlone) {
  torch::Tensor base = torch::ones({1});
  torch::Tensor expanded = base.expand({5});
  const SavedState state(expanded);
  base.fill_(2);
  const auto version = base._version();
  state.restore();
  EXPECT_EQ(base.item<double>(), 1);
  EXPECT_EQ(base._version(), version);
}

TEST(SavedState, GeneratorsAreAlwaysKept) {
  torch::manual_seed(9);
  const SavedState state;
  const torch::Tensor first = torch::randn({3});
  state.restore();
  EXPECT_TRUE(torch::equal(torch::randn({3}), first));
}

/// As processes: threads share the generator.
TEST(SavedState, AWrapperTrainsOnAsIfNothingHadBeenRun) {
  testing::spawn_processes(3, [](int rank, int) {
    at::set_num_threads(1);
    for (const int before : {0, 1, 3}) {
      for (const bool views : {false, true}) {
        std::vector<std::string> results;
        for (const bool look : {true, false}) {
          torch::manual_seed(2);
          test::ConvNet module;
          auto net =
              ddp::DistributedDataParallel(module, ddp::Options().gradient_as_bucket_view(views).bucket_cap_mb(0.001));
          torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
          torch::manual_seed(rank);
          train_steps(net, optimizer, before);
          if (look) {
            const SavedState state(net, optimizer);
            train_steps(net, optimizer, 3);
            state.restore();
            EXPECT_EQ(net.steps(), before);
          }
          train_steps(net, optimizer, 3);
          results.push_back(training_state(*module));
        }
        EXPECT_EQ(results[0], results[1]) << before << " steps before, views " << views;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::inspect
