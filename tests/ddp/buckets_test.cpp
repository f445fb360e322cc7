// Buckets, and gradients that are views into them.
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::Bucket;
using ddp::DistributedDataParallel;
using ddp::Options;

TEST(Buckets, FollowTheCapsBeforeAndAfterTheFirstStep) {
  run_ranks(2, [](Rank& rank) {
    const auto step = [&](auto& net) { net(input_of(rank)).sum().backward(); };
    auto whole = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    EXPECT_EQ(whole.buckets().size(), 1);
    // fc1 64+8… in bytes: fc1.weight 16·8·4 = 512, fc1.bias 64, fc2.weight 1024, fc2.bias 64, fc3.weight 256, fc3.bias
    // 16.
    auto small = DistributedDataParallel(Mlp(), Options().process_group(rank.group).bucket_cap_mb(300.0 / (1 << 20)));
    EXPECT_EQ(small.buckets().size(), 1) << "one bucket before the order of gradients is known";
    step(small);
    step(small);
    const auto buckets = small.buckets();
    ASSERT_GT(buckets.size(), 2);
    EXPECT_EQ(buckets[0].parameters.front(), "fc3.bias") << "the last layer's gradients come first";
    int64_t bytes = 0;
    for (const Bucket& bucket : buckets) bytes += bucket.bytes;
    EXPECT_EQ(bytes, 512 + 64 + 1024 + 64 + 256 + 16);
    auto listed = DistributedDataParallel(
        Mlp(), Options().process_group(rank.group).bucket_cap_mb_list({100.0 / (1 << 20), 1.0}));
    EXPECT_EQ(listed.buckets().size(), 2);
    step(listed);
    step(listed);
    EXPECT_EQ(listed.buckets().size(), 2);
    EXPECT_LE(listed.buckets()[0].bytes, 16 + 256);
    const auto data = small.logging_data();
    EXPECT_EQ(data.ints_map.at("world_size"), 2);
    EXPECT_EQ(data.strs_map.at("module_name"), small.module()->name());
  });
}

TEST(BucketViews, ShareTheBucketsMemoryAndWorkWithEveryZeroGrad) {
  run_ranks(2, [](Rank& rank) {
    for (const bool to_none : {true, false}) {
      auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group).gradient_as_bucket_view(true));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        net(input_of(rank, step)).sum().backward();
        expect_equal_on_ranks(rank, flat_gradients(*net));
        const auto buckets = net.reducer()->get_grad_buckets(false);
        EXPECT_TRUE(net->fc3->bias.grad().is_alias_of(buckets[0].getBuffer()));
        optimizer.step();
        switch (step) {
          case 0:
            net.zero_grad(to_none);
            break;
          case 1:
            optimizer.zero_grad(to_none);
            break;  // throws in LibTorch for gradients that are views
          case 2:
            net->zero_grad(to_none);
            break;
        }
        if (step < 3 && !to_none) {
          EXPECT_EQ(flat_gradients(*net).abs().sum().item<double>(), 0);
        }
        if (step < 3 && to_none) {
          EXPECT_FALSE(net->fc1->weight.grad().defined());
        }
      }
    }
  });
}

TEST(BucketViews, AreClearedByTheOptimizerAtAnyTime) {
  run_ranks(2, [](Rank& rank) {
    const auto options = Options().process_group(rank.group).gradient_as_bucket_view(true).bucket_cap_mb(3e-4);
    for (const bool to_none : {true, false}) {
      // Before the first forward: the module had gradients when it was wrapped.
      Mlp trained;
      fill_parameters(*trained, 1);
      trained(input_of(rank)).sum().backward();
      auto net = DistributedDataParallel(trained, options);
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      optimizer.zero_grad(to_none);
      for (int step = 0; step < 3; ++step) {
        // Between forward and backward: the second forward lays out the buckets anew.
        const auto loss = net(input_of(rank, step)).sum();
        optimizer.zero_grad(to_none);
        EXPECT_EQ(flat_gradients(*net).abs().sum().item<double>(), 0);
        loss.backward();
        expect_reduced(rank, *net);
        EXPECT_TRUE(net->fc3->bias.grad().is_alias_of(net.reducer()->get_grad_buckets(false)[0].getBuffer()));
      }
      // After a backward that failed, and after the reset.
      const auto loss = net(input_of(rank)).sum();
      const auto hook =
          net->fc1->weight.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
      EXPECT_THROW(loss.backward(), std::runtime_error);
      net->fc1->weight.remove_hook(hook);
      optimizer.zero_grad(to_none);
      net.reset();
      optimizer.zero_grad(to_none);
      net(input_of(rank)).sum().backward();
      expect_reduced(rank, *net);
      // And in another wrapper of the module.
      auto again = DistributedDataParallel(trained, options);
      optimizer.zero_grad(to_none);
      again(input_of(rank)).sum().backward();
      expect_reduced(rank, *again);
    }
  });
}

// The loop of the DCGAN example, with an optimizer for each of the two.
TEST(BucketViews, TrainTwoModulesAgainstEachOther) {
  const auto train = [](const Options& given) {
    torch::Tensor last;
    run_ranks(2, [&](Rank& rank) {
      auto options = given;
      options.process_group(rank.group);
      Mlp generator(8), judge(12);
      fill_parameters(*generator, 1);
      fill_parameters(*judge, 2);
      auto net_g = DistributedDataParallel(torch::nn::Sequential(generator, torch::nn::Linear(4, 8)), options);
      fill_parameters(*net_g, 1);
      auto net_d = DistributedDataParallel(judge, options);
      torch::optim::SGD optimizer_g(net_g.parameters(), 0.05), optimizer_d(net_d.parameters(), 0.05);
      for (int step = 0; step < 4; ++step) {
        const auto fake = net_g(input_of(rank, step));
        optimizer_d.zero_grad();
        net_d(input_of(rank, step + 50)).square().mean().backward();
        net_d(fake.detach()).add(1).square().mean().backward();
        optimizer_d.step();
        optimizer_g.zero_grad();
        net_d(fake).square().mean().backward();
        expect_reduced(rank, *net_g);
        optimizer_g.step();
      }
      expect_equal_on_ranks(rank, torch::cat({flat(*net_g), flat(*net_d)}));
      if (rank.rank == 0) last = torch::cat({flat(*net_g), flat(*net_d)});
    });
    return last;
  };
  const auto plain = train(Options());
  EXPECT_LT(max_difference(train(Options().gradient_as_bucket_view(true)), plain), 1e-6);
}

}  // namespace
}  // namespace lockstep::test
