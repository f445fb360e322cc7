// What makes replicas equal: the broadcast at construction, and that of buffers before forward.
#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;

TEST(InitSync, MakesReplicasEqualOrLeavesThem) {
  run_ranks(3, [](Rank& rank) {
    const auto make = [&](const Options& options) {
      ConvNet module;
      fill_parameters(*module, 50 + rank.rank);
      module->norm1->running_mean.fill_(rank.rank);
      auto chosen = options;
      return DistributedDataParallel(module, chosen.process_group(rank.group));
    };
    const auto first = [&](const auto& net) { return net->conv1->weight.detach().clone(); };
    auto equal = make(Options());
    expect_equal_on_ranks(rank, first(equal));
    EXPECT_EQ(equal->norm1->running_mean[0].template item<float>(), 0);
    auto without_buffers = make(Options().broadcast_buffers(false));
    EXPECT_EQ(without_buffers->norm1->running_mean[0].template item<float>(), rank.rank);
    auto apart = make(Options().init_sync(false));
    EXPECT_FALSE(gather(rank, first(apart))[0].equal(gather(rank, first(apart))[2]));
    apart.sync_module_states(2);
    expect_equal_on_ranks(rank, first(apart));
    EXPECT_EQ(apart->norm1->running_mean[0].template item<float>(), 2);
    auto ignoring = make(Options().ignored_parameters({"conv1.weight", "norm1.running_mean"}));
    EXPECT_FALSE(gather(rank, first(ignoring))[0].equal(gather(rank, first(ignoring))[1]));
    EXPECT_EQ(ignoring->norm1->running_mean[0].template item<float>(), rank.rank);
  });
}

TEST(Buffers, AreRankZerosBeforeForwardOrWhatAHookMakesOfThem) {
  run_ranks(2, [](Rank& rank) {
    const auto mean = [](const auto& net) { return net->norm1->running_mean.clone(); };
    auto net = DistributedDataParallel(ConvNet(), Options().process_group(rank.group));
    net(input_of(rank)).sum().backward();
    EXPECT_FALSE(gather(rank, mean(net))[0].equal(gather(rank, mean(net))[1])) << "each has seen its own batch";
    net.eval();
    net(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, mean(net));

    auto own = DistributedDataParallel(ConvNet(), Options().process_group(rank.group).broadcast_buffers(false));
    for (int step = 0; step < 2; ++step) own(input_of(rank, step)).sum().backward();
    EXPECT_FALSE(gather(rank, mean(own))[0].equal(gather(rank, mean(own))[1]));

    auto hooked = DistributedDataParallel(ConvNet(), Options().process_group(rank.group));
    hooked.register_buffer_comm_hook([&](const auto& buffers) {
      std::vector<ddp::GradFuture> futures;
      for (const auto& [name, buffer] : buffers) {
        if (!buffer.is_floating_point()) continue;
        std::vector<torch::Tensor> tensors{buffer};
        c10d::AllreduceOptions options;
        options.reduceOp = c10d::ReduceOp::SUM;
        futures.push_back(rank.group->allreduce(tensors, options)->getFuture());
      }
      return futures;
    });
    hooked(input_of(rank)).sum().backward();
    expect_equal_on_ranks(rank, mean(hooked));
  });
}

}  // namespace
}  // namespace lockstep::test
