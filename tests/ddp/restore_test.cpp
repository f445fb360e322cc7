// What ddp::restore copies from one rank to others, and what it names as lost.
#include "ddp/restore.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>

#include "ddp/distributed_data_parallel.h"
#include "protocol/error.h"
#include "tests/ddp/models.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
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
    torch::nn::Linear other(2, 2);
    for (auto& parameter : other->parameters()) parameter.data().fill_(rank);
    const auto report = ddp::Restoration(0, RankSet{2}).add("net", net).add("other", other).run();
    EXPECT_THAT(report.lost, Contains(HasSubstr("other.bias")));
    EXPECT_TRUE(are_replicas(*net));
    EXPECT_EQ(other->bias[0].item<int>(), rank);
  });
}

/// Two steps of SGD with momentum on rank 2, which is to get the state of rank 0; the others have made `steps`.
std::vector<std::string> lost_after(const std::function<int(int rank)>& steps) {
  std::vector<std::string> lost;
  spawn_ranks(3, [&](int rank, int) {
    torch::nn::Linear net(2, 2);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int i = 0; i < steps(rank); ++i) {
      for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
      optimizer.step();
    }
    for (auto& parameter : net->parameters()) parameter.data().fill_(1);
    const auto report = ddp::Restoration(0, RankSet{2}).add("net", net).add("optimizer", optimizer).run();
    if (rank == 2) lost = report.lost;
  });
  return lost;
}

TEST(Restore, ComparesTheStatesOfTheOtherRanks) {
  EXPECT_THAT(lost_after([](int rank) { return rank == 2 ? 0 : 2; }), IsEmpty());
  EXPECT_THAT(lost_after([](int rank) { return rank; }),
              ElementsAre(HasSubstr("optimizer: the other ranks do not agree on its state")));
}

TEST(Restore, NamesWhatOneRankLacks) {
  spawn_ranks(3, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    std::unique_ptr<torch::optim::SGD> optimizer;
    if (rank != 2) optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1));
    torch::nn::Linear absent{nullptr};
    if (rank == 2) absent = torch::nn::Linear(1, 1);
    enum { red };
    const auto report =
        ddp::Restoration(0).add("net", net).add("optimizer", optimizer).add("absent", absent).add("red", red).run();
    EXPECT_THAT(report.lost, Contains("optimizer: not all ranks have it"));
    EXPECT_THAT(report.lost, Contains(HasSubstr("absent.bias")));
    EXPECT_TRUE(are_replicas(*net));
    EXPECT_EQ(dist::all_gather_object(report.lost), std::vector(3, report.lost));
  });
}

/// An optimizer of a user's, who has written no save().
struct Unsaved : torch::optim::SGD {
  using SGD::SGD;
  void save(torch::serialize::OutputArchive&) const override {}
};

TEST(Restore, SaysThatAnOptimizerCanNotBeSaved) {
  spawn_ranks(2, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    Unsaved optimizer(net->parameters(), torch::optim::SGDOptions(0.1 * (rank + 1)).momentum(0.9));
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    optimizer.step();
    const auto report = ddp::restore(net, optimizer);
    EXPECT_THAT(report.lost, ElementsAre("optimizer: its class has no save()"));
    EXPECT_EQ(optimizer.state().size(), 2u);
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.1 * (rank + 1));
  });
}

TEST(Restore, NamesUnevenShards) {
  spawn_ranks(3, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    auto flat = torch::full({rank == 1 ? 1 : 3}, double(rank), torch::requires_grad());
    torch::optim::SGD shard({flat}, torch::optim::SGDOptions(0.1 * (rank + 1)));
    const auto report = ddp::Restoration(0, RankSet{2}).add("net", net).add("shard", shard).run();
    EXPECT_THAT(report.lost, Contains(HasSubstr("shard: the state that rank 2 held")));
    EXPECT_EQ(shard.param_groups()[0].options().get_lr(), 0.1 * (rank + 1));
  });
}

TEST(Restore, NamesWhatTheOthersDoNotShare) {
  spawn_ranks(3, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.data().fill_(1);
    net->bias.data().fill_(rank);
    const auto report = ddp::Restoration(0, RankSet{2}).add("net", net).run();
    EXPECT_THAT(report.lost, Contains(HasSubstr("net.bias")));
    EXPECT_THAT(report.restored, Contains(HasSubstr("net: 1 tensor")));
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
    EXPECT_THAT(report.lost, Contains(AllOf(HasSubstr("shard: the state that rank 1 held"),
                                            HasSubstr("of no module among the names of the session"))));
    EXPECT_EQ(flat[0].item<int>(), rank);
  });
}

TEST(Restore, NamesTensorsThatCanNotBeSentAndCopiesTheRest) {
  spawn_ranks(2, [](int rank, int) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.data().fill_(rank);
    net->register_buffer("sparse", torch::eye(2).to_sparse());
    net->register_buffer("expanded", torch::ones({1}).expand({3}));
    const auto report = ddp::restore(net, 0);
    EXPECT_THAT(report.lost, ElementsAre(HasSubstr("net.expanded"), HasSubstr("net.sparse")));
    EXPECT_THAT(report.restored, Contains(HasSubstr("net: 2 tensors")));
    EXPECT_EQ(net->bias[0].item<int>(), 0);
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
