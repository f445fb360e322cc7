// replay puts everything back that the step has changed, also after an exception.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "inspectors/nan/nan.h"
#include "tests/inspectors/nan_fixture.h"

namespace lockstep::inspect {
namespace {

TEST_F(Nan, replay_puts_everything_back) {
  auto net = std::make_shared<ReluNet>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2).amsgrad(true));
  const auto train = [&] {
    optimizer.zero_grad();
    auto loss = torch::dropout(net->forward(relu_input()), 0.5, true).square().mean();
    loss.backward();
    optimizer.step();
    return loss;
  };
  torch::manual_seed(3);
  for (int i = 0; i < 2; ++i) train();
  std::vector<torch::Tensor> values, gradients;
  for (auto& each : net->parameters()) {
    values.push_back(each.detach().clone());
    gradients.push_back(each.grad().clone());
  }
  const auto draw = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const auto generator = draw();
  replay(
      [&] {
        net->eval();
        optimizer.param_groups()[0].options().set_lr(7);
        return train();
      },
      net, optimizer);
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 1e-2);
  EXPECT_TRUE(torch::equal(draw(), generator));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(torch::equal(net->parameters()[i], values[i]));
    EXPECT_TRUE(torch::equal(net->parameters()[i].grad(), gradients[i]));
  }
  // And training goes on as it would have.
  const auto next = train();
  auto other = std::make_shared<ReluNet>();
  torch::optim::Adam fresh(other->parameters(), torch::optim::AdamOptions(1e-2).amsgrad(true));
  std::swap(net, other);
  torch::manual_seed(3);
  torch::Tensor expected;
  for (int i = 0; i < 3; ++i) {
    fresh.zero_grad();
    expected = torch::dropout(net->forward(relu_input()), 0.5, true).square().mean();
    expected.backward();
    fresh.step();
  }
  EXPECT_TRUE(torch::equal(next, expected));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(torch::equal(net->parameters()[i], other->parameters()[i]));
}

TEST_F(Nan, an_exception_passes_and_the_state_is_back) {
  auto weight = torch::ones({3}).set_requires_grad(true);
  EXPECT_THROW(replay(
                   [&] {
                     torch::NoGradGuard guard;
                     weight.mul_(2);
                     throw std::runtime_error("no");
                   },
                   weight),
               std::runtime_error);
  EXPECT_TRUE(torch::equal(weight, torch::ones({3})));
}

}  // namespace
}  // namespace lockstep::inspect
