// A wrapper that starts afresh: after a step that failed, and over another group.
#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;

TEST(Reset, MakesAWrapperUsableAfterAStepThatFailed) {
  run_ranks(2, [](Rank& rank) {
    for (const bool views : {false, true}) {
      auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group).gradient_as_bucket_view(views));
      for (int step = 0; step < 3; ++step) {
        net(input_of(rank)).sum().backward();
        // A backward that dies half way, on every rank.
        auto output = net(input_of(rank));
        auto hook =
            net->fc1->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
        EXPECT_THROW(output.sum().backward(), std::runtime_error);
        net->fc1->weight.remove_hook(hook);
        EXPECT_THROW(net(input_of(rank)), std::runtime_error);
        net.reset();
        net.zero_grad();
        net(input_of(rank)).sum().backward();
        expect_equal_on_ranks(rank, flat_gradients(*net));
      }
    }
  });
}

TEST(Reset, KeepsAParameterThatWasFrozenAfterWrapping) {
  run_ranks(2, [](Rank& rank) {
    const auto options = Options().process_group(rank.group).find_unused_parameters(true);
    auto net = DistributedDataParallel(Mlp(), options);
    const torch::Tensor frozen = net->fc1->weight;
    frozen.set_requires_grad(false);
    net.reset();
    EXPECT_FALSE(frozen.requires_grad());
    net(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, net->fc2->weight.grad());
    frozen.set_requires_grad(true);
    net(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, flat_gradients(*net));
  });
}

TEST(Reset, ReadsTheBucketsOfOneRankWithAFrozenParameter) {
  run_ranks(1, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    net->fc1->weight.set_requires_grad(false);
    EXPECT_FALSE(net.buckets().empty());
  });
}

TEST(Groups, CanBeExchanged) {
  run_ranks(3, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    net(input_of(rank)).sum().backward();
    if (rank.rank == 2) return;
    auto pair = make_group(rank.store, rank.rank, 2, "pair");
    net.update_process_group(pair);
    net.zero_grad();
    net(input_of(rank)).sum().backward();
    Rank in_pair{rank.rank, 2, pair, rank.store};
    expect_equal_on_ranks(in_pair, flat_gradients(*net));
    auto alone = make_group(rank.store, 0, 1, "alone" + std::to_string(rank.rank));
    net.update_process_group(alone);
    net.zero_grad();
    net(input_of(rank)).sum().backward();
    EXPECT_EQ(net.reducer(), nullptr);
  });
}

}  // namespace
}  // namespace lockstep::test
