// Over dist's groups, as cells and plain programs have them: the default group, the lesson's class, helpers, and a
// wrapper that goes on after collectives were aborted and the group was connected again.
#include <gmock/gmock.h>
#include <barrier>

#include <optional>

#include "collectives/dist.h"
#include "collectives/session_group.h"
#include "lockstep/ddp.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::SimpleDistributedDataParallel;
using ::testing::HasSubstr;

void expect_equal_in_default_group(const torch::Tensor& mine) {
  for (const auto& theirs : dist::all_gather(mine)) EXPECT_TRUE(theirs.equal(mine));
}

TEST(DefaultGroup, IsTakenByWrappersHooksAndNorms) {
  testing::spawn_ranks(2, [](int rank, int) {
    ConvNet module;
    ddp::convert_sync_batchnorm(*module);
    auto net = DistributedDataParallel(module);
    net.register_comm_hook(ddp::fp16_compress_hook());
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net(random_tensor({4, 8}, rank)).sum().backward();
      expect_equal_in_default_group(flat_gradients(*net));
    }
  });
}

TEST(Group, ARankOutsideOfItIsToldSo) {
  testing::spawn_ranks(3, [](int rank, int) {
    const auto group = dist::new_group({0, 2});
    Mlp module;
    fill_parameters(*module, 1);
    std::string error;
    try {
      auto net = DistributedDataParallel(module, ddp::Options().process_group(group));
      net(random_tensor({4, 8}, rank)).sum().backward();
    } catch (const ddp::ArgumentError& thrown) {
      error = thrown.what();
    }
    if (rank == 1)
      EXPECT_THAT(error, AllOf(HasSubstr("rank 1 is not in group group_1 (ranks 0,2)"),
                               HasSubstr("if (dist::get_rank(group) >= 0)")));
    else
      EXPECT_EQ(error, "");
  });
}

TEST(Simple, TeachesTheFourVersions) {
  const auto outcomes = testing::run_as_threads(2, [](int rank, int) {
    Mlp module;
    fill_parameters(*module, 42 + rank);
    auto net = SimpleDistributedDataParallel(module);
  });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
  EXPECT_THAT(outcomes[1].error, AllOf(HasSubstr("rank 1"), HasSubstr("fc1.weight"), HasSubstr("set_seed")));

  testing::spawn_ranks(2, [](int rank, int) {
    Mlp module, large;
    fill_parameters(*module, 43);
    fill_parameters(*large, 43);
    auto net = SimpleDistributedDataParallel(module);
    const auto whole = random_tensor({8, 8}, 1);
    for (int micro = 0; micro < 2; ++micro) {
      std::shared_ptr<void> scope;
      if (micro == 0) scope = net.no_sync();
      (net(whole.narrow(0, rank * 4 + micro * 2, 2)).square().mean() / 2).backward();
      net.sync_gradients();
    }
    large(whole).square().mean().backward();
    EXPECT_LT(max_difference(flat_gradients(*module), flat_gradients(*large)), 1e-6);
    expect_equal_in_default_group(flat_gradients(*module));
    net.disable_grad_sync();
    module->zero_grad();
    net(whole.narrow(0, rank * 4, 4)).sum().backward();
    net.sync_gradients();
    const auto apart = dist::all_gather(flat_gradients(*module));
    EXPECT_FALSE(apart[0].equal(apart[1]));
    net.enable_grad_sync();
    net.eval();
    EXPECT_FALSE(module->is_training());
    net.train();
  });
}

TEST(SharedParameters, AreListedAndSteppedOnce) {
  testing::spawn_ranks(2, [](int rank, int) {
    Tied module;
    fill_parameters(*module, 3);
    const auto before = module->first->weight.detach().clone();
    auto net = DistributedDataParallel(module);
    EXPECT_EQ(net.parameters().size(), 4u);
    EXPECT_EQ(module->parameters().size(), 5u) << "LibTorch's list has the weight twice";
    EXPECT_FALSE(net.named_parameters().contains("first.weight")) << "it goes by the first of its names, second_weight";
    torch::optim::SGD optimizer(net.parameters(), 0.5);
    net(random_tensor({4, 8}, rank)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(module->first->weight.equal(before - 0.5 * module->first->weight.grad()));
  });
}

TEST(Accumulation, IsOneReductionInTheCollectiveLog) {
  testing::spawn_ranks(2, [](int rank, int) {
    auto net = DistributedDataParallel(Mlp());
    const auto x = random_tensor({4, 8}, rank);
    for (int step = 0; step < 2; ++step) net(x).sum().backward();  // the buckets are made anew before the second
    for (const int synchronised : {1, 4}) {
      const auto before = dist::progress().at("default");
      for (int micro = 0; micro < 4; ++micro) {
        std::optional<ddp::NoSync> scope;
        if (micro < 4 - synchronised) scope.emplace(net);
        net(x).sum().backward();
      }
      const auto entered = dist::progress().at("default") - before;
      EXPECT_EQ(entered, synchronised);
      for (const auto& record : dist::last_collectives(static_cast<size_t>(entered))) {
        EXPECT_EQ(record.op, "all_reduce");
        EXPECT_EQ(record.state, dist::CollectiveState::done);
      }
    }
  });
}

// In these, a rank that aborts its collectives could break the last one of the others, too. So the ranks wait for one
// another first, outside the group.
TEST(Regroup, LetsAWrapperGoOn) {
  std::barrier reduced(2);
  testing::spawn_ranks(2, [&reduced](int rank, int) {
    auto net = DistributedDataParallel(Mlp());
    const auto x = random_tensor({4, 8}, rank);
    for (int generation = 1; generation <= 2; ++generation) {
      for (int step = 0; step < 2; ++step) net(x).sum().backward();
      reduced.arrive_and_wait();
      if (rank == 0) {
        EXPECT_ANY_THROW({
          auto loss = net(x).sum();
          dist::abort("the test wants it");
          loss.backward();
        });
      } else {
        EXPECT_ANY_THROW(net(x).sum().backward());
      }
      dist::regroup(generation, RankSet::all(2));
      net.zero_grad();
      net(x).sum().backward();
      expect_equal_in_default_group(flat_gradients(*net));
    }
  });
}

TEST(Regroup, LetsHooksThatCountStepsGoOnWithOneCount) {
  std::barrier launched(2), failed(2);
  testing::spawn_ranks(2, [&](int rank, int) {
    const auto power = std::make_shared<ddp::PowerSGDState>(
        ddp::PowerSGDOptions().start_powerSGD_iter(3).warm_start(false).use_error_feedback(false).min_compression_rate(
            1));
    const auto local = std::make_shared<ddp::PostLocalSGDState>(
        ddp::PostLocalSGDOptions().start_localSGD_iter(3).post_local_gradient_allreduce(false));
    int generation = 0;
    const auto count_over_a_failure = [&](const ddp::CommHook& hook, const auto& state) {
      bool fails = false;
      ddp::CommHook watched(
          hook.name,
          [&](ddp::GradBucket& bucket) {
            auto sent = hook.run(bucket);
            if (fails) launched.arrive_and_wait();
            return sent;
          },
          hook.restart);
      Mlp module;
      fill_parameters(*module, 1);
      auto net = DistributedDataParallel(module);
      net.register_comm_hook(watched);
      const auto x = random_tensor({4, 8}, rank);
      for (int step = 0; step < 2; ++step) net(x).sum().backward();
      failed.arrive_and_wait();
      fails = true;
      if (rank == 0) {  // fails before its backward, when the other one has begun to reduce
        launched.arrive_and_wait();
        dist::abort("the test wants it");
      } else {
        EXPECT_ANY_THROW(net(x).sum().backward());
      }
      fails = false;
      dist::regroup(++generation, RankSet::all(2));
      net.zero_grad();
      net(x).sum().backward();
      EXPECT_EQ(state->iter(), 3);
      expect_equal_in_default_group(flat_gradients(*net));
      net(x).sum().backward();  // the first that is no longer reduced in full
      EXPECT_EQ(state->iter(), 4);
      dist::barrier();
    };
    count_over_a_failure(ddp::powerSGD_hook(power), power);
    count_over_a_failure(ddp::post_localSGD_hook(local), local);
  });
}

TEST(Regroup, LeavesAllRanksWithOneCountOfSteps) {
  std::barrier reduced(2);
  testing::spawn_ranks(2, [&](int rank, int) {
    auto net = DistributedDataParallel(Mlp());
    auto other = DistributedDataParallel(Mlp());
    ddp::PeriodicModelAverager averager(/*period=*/3);
    const auto x = random_tensor({4, 8}, rank);
    const auto step = [&] {
      net.zero_grad();
      net(x).sum().backward();
      return averager.average_parameters(net.parameters());
    };
    EXPECT_TRUE(step());  // the calls number 0, 3, 6, …
    EXPECT_FALSE(step());
    reduced.arrive_and_wait();
    // Rank 1 takes a step of which rank 0 has none, and counts both the forward and a call of the averager.
    if (rank == 1) {
      net(x);
      EXPECT_FALSE(averager.average_parameters(net.parameters()));
      EXPECT_EQ(net.steps(), 3);
      EXPECT_EQ(averager.step(), 3);
    }
    dist::abort("the test wants it");
    reduced.arrive_and_wait();
    dist::regroup(1, RankSet::all(2));
    {
      const torch::NoGradGuard no_grad;
      if (rank == 0) net(x);  // no step
    }
    if (rank == 0) other(x);  // none either: nobody else has to come
    EXPECT_FALSE(step());
    EXPECT_EQ(net.steps(), 3);
    EXPECT_EQ(averager.step(), 3);
    EXPECT_TRUE(step());
    EXPECT_EQ(net.steps(), 4);
    EXPECT_EQ(averager.step(), 4);

    for (int i = 0; i < 2; ++i) other(x).sum().backward();
    // The same without reconnecting, after reset(); and in a join, in whose loop one rank runs no
    // forward.
    if (rank == 1) {
      net(x);
      other(x);
      EXPECT_FALSE(averager.average_parameters(net.parameters()));
    }
    for (const auto& each : std::vector<ddp::DistributedModule>{net, other}) each.reset();
    averager.restart();
    other.join([&] {
      if (rank == 0) other(x).sum().backward();
    });
    EXPECT_EQ(other.steps(), 3);
    EXPECT_FALSE(step());
    EXPECT_EQ(net.steps(), 5);
    EXPECT_EQ(averager.step(), 5);
    EXPECT_FALSE(step());
    EXPECT_TRUE(step());
    dist::barrier();
  });
}

TEST(Regroup, MakesABackwardOfBeforeAnError) {
  std::barrier ready(2);
  testing::spawn_ranks(2, [&ready](int rank, int) {
    auto net = DistributedDataParallel(Mlp());
    const auto x = random_tensor({4, 8}, rank);
    auto loss = net(x).sum();
    ready.arrive_and_wait();
    dist::abort("the test wants it");
    dist::regroup(1, RankSet::all(2));
    try {
      loss.backward();
      ADD_FAILURE() << "a backward whose forward was before the regroup";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("connected anew on rank"), HasSubstr("zero_grad()")));
    }
    net.zero_grad();
    net(x).sum().backward();
    expect_equal_in_default_group(flat_gradients(*net));
  });
}

TEST(Regroup, LeavesTheRanksThatAreLeftToAGroupOfTheirOwn) {
  std::barrier reduced(3);
  testing::spawn_ranks(3, [&reduced](int rank, int) {
    auto net = DistributedDataParallel(Mlp());
    const auto x = random_tensor({4, 8}, rank);
    net(x).sum().backward();
    reduced.arrive_and_wait();
    dist::abort("rank 2 is taken for lost");
    if (rank == 2) return;
    dist::regroup(1, RankSet({0, 1}));
    net.zero_grad();
    try {
      net(x).sum().backward();
      ADD_FAILURE() << "a reduction without rank 2";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2"), HasSubstr("new_group")));
    }
    const auto rest = dist::new_group({0, 1});
    net.update_process_group(rest);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      net(x).sum().backward();
    }
    const auto copies = dist::all_gather(flat_gradients(*net), rest);
    EXPECT_TRUE(copies[0].equal(copies[1]));
  });
}

TEST(Helpers, AccumulationStepsDivideByTheRanks) {
  EXPECT_EQ(ddp::accumulation_steps(1 << 19, 4 * 2048, 1), 64);
  EXPECT_EQ(ddp::accumulation_steps(1 << 19, 4 * 2048, 4), 16);
  try {
    ddp::accumulation_steps(1 << 19, 4 * 2048, 3);
    FAIL();
  } catch (const ddp::ArgumentError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("on each of 3 ranks"), HasSubstr("516096 or 540672")));
    EXPECT_THAT(error.what(), Not(HasSubstr("divisor"))) << "no micro batch makes up for ranks that do not divide";
  }
  try {
    ddp::accumulation_steps(12, 5, 3);
    FAIL();
  } catch (const ddp::ArgumentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("15, or the micro batch to a divisor of 4"));
  }
  EXPECT_THROW(ddp::accumulation_steps(0, 1, 1), ddp::ArgumentError);
  EXPECT_TRUE(ddp::is_main_rank());
}

TEST(Helpers, SamplersDivideTheData) {
  testing::spawn_ranks(3, [](int rank, int) {
    EXPECT_EQ(ddp::is_main_rank(), rank == 0);
    auto sampler = ddp::random_sampler(10, /*allow_duplicates=*/false);
    std::vector<int64_t> epochs[2];
    for (int epoch = 0; epoch < 2; ++epoch) {
      sampler.set_epoch(epoch);
      sampler.reset();
      while (const auto indices = sampler.next(2)) {
        for (const size_t index : *indices) epochs[epoch].push_back(static_cast<int64_t>(index));
      }
      std::vector<int64_t> all;
      for (const auto& theirs : dist::all_gather_object(epochs[epoch]))
        all.insert(all.end(), theirs.begin(), theirs.end());
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all.size(), 9) << "three each, the tenth is left out";
      EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "a sample was read twice";
    }
    auto in_order = ddp::sequential_sampler(6);
    EXPECT_EQ(in_order.next(9)->size(), 2);
  });
}

}  // namespace
}  // namespace lockstep::test
