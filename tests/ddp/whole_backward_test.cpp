// Gradients are reduced and the step is reported, or an error gives the reason: for any part of the module that takes
// part in a backward, any place of the outputs, several wrappers of a module, and modules that were loaded in between.
#include <gmock/gmock.h>

#include <sstream>

#include "ddp/distributed_data_parallel.h"
#include "ddp/inspection.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The middle one of three layers is the only one that takes part.
struct MiddleImpl : torch::nn::Module {
  MiddleImpl()
      : a(register_module("a", torch::nn::Linear(8, 4))),
        b(register_module("b", torch::nn::Linear(8, 4))),
        c(register_module("c", torch::nn::Linear(8, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return b(x); }
  torch::nn::Linear a, b, c;
};

TEST(WholeBackward, IsSeenWhereOnlyTheMiddleTakesPart) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(
        MiddleImpl(), Options().process_group(rank.group).find_unused_parameters(true).gradient_as_bucket_view(true));
    int reported = 0;
    const auto listener = ddp::Inspection(net).on_step([&] { ++reported; });
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad(/*set_to_none=*/false);
      net(input_of(rank, step)).square().sum().backward();
      expect_reduced(rank, *net);
      EXPECT_EQ(reported, step + 1);
      optimizer.step();
    }
    net.zero_grad();
    EXPECT_THAT(message_of([&] { net->forward(input_of(rank)).sum().backward(); }),
                AllOf(HasSubstr("no forward of the wrapper"), HasSubstr("parameter b.")));

    auto fixed = DistributedDataParallel(MiddleImpl(), Options().process_group(rank.group).static_graph(true));
    reported = 0;
    const auto second = ddp::Inspection(fixed).on_step([&] { ++reported; });
    for (int step = 0; step < 3; ++step) {
      fixed.zero_grad();
      fixed(input_of(rank, step)).square().sum().backward();
      expect_reduced(rank, *fixed);
      EXPECT_EQ(reported, step + 1);
    }
  });
}

TEST(WholeBackward, IsReducedAfterASubmoduleWasLoaded) {
  run_ranks(2, [](Rank& rank) {
    Mlp module, other;
    fill_parameters(*module, 8);
    std::stringstream archive;
    torch::save(other->fc2, archive);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
    net(input_of(rank)).sum().backward();
    archive.seekg(0);
    torch::load(net->fc2, archive);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net(input_of(rank, step)).sum().backward();
      expect_reduced(rank, *net);
    }
    archive.seekg(0);
    torch::load(net->fc2, archive);
    net.reset();
    net.zero_grad();
    net(input_of(rank)).sum().backward();
    expect_reduced(rank, *net);
    net.zero_grad();
    EXPECT_THAT(message_of([&] { net->fc2->forward(torch::ones({1, 16})).sum().backward(); }),
                HasSubstr("no forward of the wrapper"));
  });
}

TEST(SeveralWrappers, OfOneModuleOrOfSharedParametersLeaveEachOtherAlone) {
  run_ranks(2, [](Rank& rank) {
    const auto module = std::make_shared<MlpImpl>();
    const auto options = Options().process_group(rank.group);
    auto old = DistributedDataParallel(module, options);
    old(input_of(rank)).sum().backward();
    auto net = DistributedDataParallel(module, options);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net(input_of(rank, step)).sum().backward();
      expect_reduced(rank, *net);
    }
    old.zero_grad();
    old(input_of(rank, 1)).sum().backward();
    expect_reduced(rank, *old);
    auto copied = DistributedDataParallel(*module, options);  // a copy of a module shares its tensors
    copied.zero_grad();
    copied(input_of(rank, 2)).sum().backward();
    expect_reduced(rank, *copied);
    net.zero_grad();
    EXPECT_THAT(message_of([&] { module->forward(input_of(rank)).sum().backward(); }),
                HasSubstr("no forward of the wrapper"));
  });
}

// Outputs that no wrapper finds: in a struct without tensors_of, or not returned at all.
struct HiddenOutput {
  torch::Tensor y;
};
struct HidesImpl : MlpImpl {
  HiddenOutput forward(const torch::Tensor& x) { return {MlpImpl::forward(x)}; }
};
struct KeepsImpl : MlpImpl {
  void forward(const torch::Tensor& x) { kept = MlpImpl::forward(x); }
  torch::Tensor kept;
};

TEST(StaticGraph, IsReducedWhereverForwardLeavesItsOutputs) {
  run_ranks(2, [](Rank& rank) {
    auto hides = DistributedDataParallel(HidesImpl(), Options().process_group(rank.group).static_graph(true));
    auto keeps = DistributedDataParallel(KeepsImpl(), Options().process_group(rank.group).static_graph(true));
    auto low =
        DistributedDataParallel(HidesImpl(), Options()
                                                 .process_group(rank.group)
                                                 .static_graph(true)
                                                 .mixed_precision(ddp::MixedPrecision().param_dtype(torch::kBFloat16)));
    for (int step = 0; step < 3; ++step) {
      hides.zero_grad();
      hides(input_of(rank, step)).y.sum().backward();
      expect_reduced(rank, *hides);
      keeps.zero_grad();
      keeps(input_of(rank, step));
      keeps->kept.sum().backward();
      expect_reduced(rank, *keeps);
      low.zero_grad();
      low(input_of(rank, step)).y.sum().backward();
      expect_reduced(rank, *low);
    }
  });
}

TEST(StaticGraph, IsReducedWithAPenaltyOnGradients) {
  for (const bool alone : {false, true}) {  // the penalty is the whole loss: no output takes part in its backward
    const auto loss_of = [&](const auto& forward, const torch::Tensor& given) {
      auto x = given.clone().requires_grad_();
      const auto y = forward(x);
      const auto gradient = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
      return alone ? gradient.square().sum() : y.square().sum() + gradient.square().sum();
    };
    constexpr int kSteps = 3;
    std::vector<torch::Tensor> together;
    run_ranks(2, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 5);
      auto net = DistributedDataParallel(module, Options().process_group(rank.group).static_graph(true));
      int reported = 0;
      const auto listener = ddp::Inspection(net).on_step([&] { ++reported; });
      for (int step = 0; step < kSteps; ++step) {
        net.zero_grad();
        loss_of([&](const torch::Tensor& x) { return net(x); }, input_of(rank, step)).backward();
        expect_reduced(rank, *net);
        EXPECT_EQ(reported, step + 1);
        if (rank.rank == 0) together.push_back(flat_gradients(*net));
      }
    });
    for (int step = 0; step < kSteps; ++step) {
      Mlp module;
      fill_parameters(*module, 5);
      for (int part = 0; part < 2; ++part) {
        const auto x = random_tensor({4, 8}, 100 * step + part);
        (loss_of([&](const torch::Tensor& x) { return module(x); }, x) / 2).backward();
      }
      EXPECT_LT(max_difference(together.at(step), flat_gradients(*module)), 1e-5);
    }
  }
}

TEST(StaticGraph, SaysThatItsFirstBackwardEndedEarly) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group).static_graph(true));
    const auto loss = net(input_of(rank)).sum();
    const auto hook =
        net->fc1->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
    EXPECT_THROW(loss.backward(), std::runtime_error);
    net->fc1->weight.remove_hook(hook);
    EXPECT_THAT(message_of([&] { net(input_of(rank)); }), HasSubstr("net.reset()"));
    net.reset();
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net(input_of(rank, step)).sum().backward();
      expect_reduced(rank, *net);
    }
  });
}

TEST(Forward, MayReturnNothing) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(KeepsImpl(), Options().process_group(rank.group));
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net(input_of(rank, step));
      net->kept.sum().backward();
      expect_reduced(rank, *net);
    }
  });
}

TEST(UnusedParameters, CannotBeFoundWithoutAnOutput) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(HidesImpl(), Options().process_group(rank.group).find_unused_parameters(true));
    net(input_of(rank));  // and no backward
    for (int step = 0; step < 2; ++step) {
      const auto loss = net(input_of(rank, step)).y.sum();
      EXPECT_THAT(message_of([&] { loss.backward(); }), AllOf(HasSubstr("tensors_of"), HasSubstr("static_graph")));
    }
  });
}

TEST(StaticGraph, TellsOfAStepWhenTheOutermostBackwardHasEnded) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(CheckpointedImpl(), Options().process_group(rank.group).static_graph(true));
    int reported = 0;
    const auto listener = ddp::Inspection(net).on_step([&] {
      ++reported;
      expect_reduced(rank, *net);
    });
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net(input_of(rank, step)).square().sum().backward();
      EXPECT_EQ(reported, step + 1);
    }
  });
}

}  // namespace
}  // namespace lockstep::test
