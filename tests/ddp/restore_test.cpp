// What ddp::restore copies from one rank to others, and what it names as lost.
#include "ddp/restore.h"

#include <gmock/gmock.h>

#include "ddp/distributed_data_parallel.h"
#include "protocol/error.h"
#include "tests/ddp/models.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::spawn_ranks;

/// Whether all ranks have the same parameters and buffers.
bool are_replicas(const torch::nn::Module& module) {
  torch::Tensor all = torch::zeros({0}, torch::kDouble);
  for (const auto& each : module.parameters()) all = torch::cat({all, each.detach().flatten().to(torch::kDouble)});
  for (const auto& each : module.buffers()) all = torch::cat({all, each.flatten().to(torch::kDouble)});
  for (const auto& theirs : dist::all_gather(all))
    if (!torch::equal(theirs, all)) return false;
  return true;
}

template <class Optimizer, class Options>
void expect_equal_steps_after(const Options& options) {
  spawn_ranks(3, [&](int rank, int) {
    Mlp net;
    dist::barrier();  // the generator is the process's
    for (auto& parameter : net->parameters()) parameter.data().fill_(0.1 * (rank + 1));
    Optimizer optimizer(net->parameters(), options);
    const auto step = [&] {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = parameter.detach() * 0.5;
      optimizer.step();
    };
    for (int i = 0; i <= rank; ++i) step();
    const auto report = ddp::restore(net, optimizer, 1);
    EXPECT_THAT(report.lost, IsEmpty());
    EXPECT_TRUE(are_replicas(*net));
    step();
    EXPECT_TRUE(are_replicas(*net)) << "the state of the optimizer differs";
  });
}

TEST(Restore, GivesAllRanksModelAndMomentum) {
  expect_equal_steps_after<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
}

TEST(Restore, GivesAllRanksTheStepCountsOfAdam) {
  expect_equal_steps_after<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
}

TEST(Restore, ChangesTheRanksThatAreMeantOnly) {
  spawn_ranks(3, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.data().fill_(rank == 2 ? 5 : 1);
    const auto report = ddp::Restoration(0, RankSet{2}).add("net", net).run();
    EXPECT_THAT(report.lost, IsEmpty());
    EXPECT_TRUE(are_replicas(*net));
  });
}

TEST(Restore, NamesWhatTheOthersDoNotShare) {
  spawn_ranks(3, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.data().fill_(1);
    net->bias.data().fill_(rank);
    const auto report = ddp::Restoration(0, RankSet{2}).add("net", net).run();
    EXPECT_THAT(report.lost, Contains(HasSubstr("net.bias")));
    EXPECT_THAT(report.restored, Contains(HasSubstr("net: 1 tensors")));
    EXPECT_EQ(net->bias[0].item<int>(), rank);
  });
}

TEST(Restore, NamesShardsOfOptimizers) {
  spawn_ranks(2, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.data().fill_(1);
    torch::optim::SGD other({rank == 0 ? net->weight : net->bias}, torch::optim::SGDOptions(0.1));
    auto flat = torch::full({2}, double(rank), torch::requires_grad());
    torch::optim::SGD shard({flat}, torch::optim::SGDOptions(0.1));
    const auto report = ddp::Restoration(0).add("net", net).add("other", other).add("shard", shard).run();
    EXPECT_THAT(report.lost, Contains(HasSubstr("other: the state that rank 1 held")));
    EXPECT_THAT(report.lost, Contains(HasSubstr("shard: the state that rank 1 held")));
    EXPECT_EQ(flat[0].item<int>(), rank);
  });
}

TEST(Restore, RefusesARankThatDoesNotExist) {
  spawn_ranks(2, [](int, int) {
    torch::nn::Linear net(2, 2);
    EXPECT_THROW(ddp::restore(net, 7), ddp::ArgumentError);
  });
}

}  // namespace
}  // namespace lockstep::test
