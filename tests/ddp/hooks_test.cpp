// Communication hooks: exact ones give the same bits, lossy ones stay close, and all keep replicas equal.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "ddp/distributed_data_parallel.h"
#include "ddp/hooks/comm_hooks.h"
#include "ddp/hooks/post_local_sgd.h"
#include "ddp/hooks/power_sgd.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;
using MakeHook = std::function<ddp::CommHook(const Rank&)>;

struct Training {
  std::vector<torch::Tensor> last;     // parameters of each rank
  std::vector<double> first_and_last;  // losses of rank 0
};

// A small regression that every method has to learn, on two ranks.
Training train(const MakeHook& make_hook, int steps = 20,
               const std::function<void(Rank&, DistributedDataParallel<MlpImpl>&)>& after_step = {}) {
  Training training{std::vector<torch::Tensor>(2), {}};
  run_ranks(2, [&](Rank& rank) {
    Mlp module(32);
    fill_parameters(*module, 7);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group).bucket_cap_mb(2e-3));
    if (make_hook) net.register_comm_hook(make_hook(rank));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto x = random_tensor({32, 8}, 1).narrow(0, rank.rank * 16, 16);
    const auto y = torch::cat({x.narrow(1, 0, 2), x.narrow(1, 2, 2) * 0.5}, 1);
    for (int step = 0; step < steps; ++step) {
      net.zero_grad();
      const auto loss = torch::mse_loss(net(x), y);
      loss.backward();
      optimizer.step();
      if (after_step) after_step(rank, net);
      if (rank.rank == 0 && (step == 0 || step == steps - 1)) training.first_and_last.push_back(loss.item<double>());
    }
    training.last[rank.rank] = flat(*net);
  });
  return training;
}

TEST(Hooks, OfAllReduceGiveTheSameBitsAsNone) {
  const auto plain = train({}).last[0];
  const auto hooked = train([](const Rank& rank) { return ddp::allreduce_hook(rank.group); });
  EXPECT_TRUE(hooked.last[0].equal(plain));
  EXPECT_TRUE(hooked.last[1].equal(plain));
  run_ranks(2, [&](Rank& rank) {
    for (const auto type : {c10d::BuiltinCommHookType::ALLREDUCE, c10d::BuiltinCommHookType::FP16_COMPRESS}) {
      auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
      net.register_builtin_comm_hook(type);
      net(torch::ones({2, 8}) * (rank.rank + 1)).sum().backward();
      EXPECT_TRUE(net->fc1->weight.grad().defined());
    }
  });
}

TEST(Hooks, ThatCompressStayCloseAndKeepReplicasEqual) {
  const auto plain = train({}).last[0];
  const std::pair<MakeHook, double> hooks[] = {
      {[](const Rank& rank) { return ddp::fp16_compress_hook(rank.group); }, 2e-3},
      {[](const Rank& rank) { return ddp::bf16_compress_hook(rank.group); }, 1e-2},
      {[](const Rank& rank) { return ddp::fp16_compress_wrapper(ddp::allreduce_hook(rank.group)); }, 2e-3},
      {[](const Rank& rank) { return ddp::bf16_compress_wrapper(ddp::allreduce_hook(rank.group)); }, 1e-2},
  };
  for (const auto& [hook, bound] : hooks) {
    const auto trained = train(hook);
    EXPECT_TRUE(trained.last[0].equal(trained.last[1]));
    EXPECT_LT(max_difference(trained.last[0], plain), bound);
    EXPECT_GT(max_difference(trained.last[0], plain), 0) << "nothing was compressed";
  }
}

TEST(Hooks, ThatCompressSendSparseGradientsInFull) {
  run_ranks(2, [](Rank& rank) {
    for (const auto& hook : {ddp::fp16_compress_hook(rank.group), ddp::bf16_compress_hook(rank.group),
                             ddp::fp16_compress_wrapper(ddp::allreduce_hook(rank.group)),
                             ddp::bf16_compress_wrapper(ddp::allreduce_hook(rank.group))}) {
      Bag hooked, plain;
      fill_parameters(*hooked, 3);
      fill_parameters(*plain, 3);
      auto net = DistributedDataParallel(hooked, Options().process_group(rank.group));
      net.register_comm_hook(hook);
      auto exact = DistributedDataParallel(plain, Options().process_group(rank.group));
      const auto x = random_tensor({4, 8}, rank.rank);
      net(x).sum().backward();
      exact(x).sum().backward();
      EXPECT_TRUE(hooked->bag->weight.grad().to_dense().equal(plain->bag->weight.grad().to_dense())) << hook.name;
    }
  });
}

TEST(Hooks, NoopLeavesReplicasApart) {
  const auto trained = train([](const Rank&) { return ddp::noop_hook(); });
  EXPECT_FALSE(trained.last[0].equal(trained.last[1]));
}

TEST(Hooks, PowerSGDLearnsWithLessSent) {
  for (const bool batched : {false, true}) {
    for (const bool same_shape : {false, true}) {
      for (const int64_t approximation_rank : {1, 4}) {
        std::vector<std::shared_ptr<ddp::PowerSGDState>> states(2);
        const auto trained = train(
            [&](const Rank& rank) {
              states[rank.rank] =
                  std::make_shared<ddp::PowerSGDState>(ddp::PowerSGDOptions()
                                                           .process_group(rank.group)
                                                           .matrix_approximation_rank(approximation_rank)
                                                           .start_powerSGD_iter(3)
                                                           .min_compression_rate(1)
                                                           .orthogonalization_epsilon(1e-8)
                                                           .batch_tensors_with_same_shape(same_shape));
              return batched ? ddp::batched_powerSGD_hook(states[rank.rank]) : ddp::powerSGD_hook(states[rank.rank]);
            },
            60);
        EXPECT_TRUE(trained.last[0].equal(trained.last[1]));
        EXPECT_LT(trained.first_and_last[1], 0.5 * trained.first_and_last[0]);
        EXPECT_EQ(states[0]->iter(), 60);
        EXPECT_GT(states[0]->compression_stats().rate, 1);
      }
    }
  }
  EXPECT_THROW(ddp::PowerSGDState(ddp::PowerSGDOptions().start_powerSGD_iter(1)), ddp::ArgumentError);
}

TEST(Hooks, PowerSGDOfFullRankIsExact) {
  // With r = min(n, m) two factors hold any matrix; no error is left to feed back.
  const auto plain = train({}).last[0];
  const auto trained = train([&](const Rank& rank) {
    return ddp::powerSGD_hook(std::make_shared<ddp::PowerSGDState>(ddp::PowerSGDOptions()
                                                                       .process_group(rank.group)
                                                                       .matrix_approximation_rank(32)
                                                                       .start_powerSGD_iter(2)
                                                                       .min_compression_rate(1e-9)));
  });
  EXPECT_LT(max_difference(trained.last[0], plain), 1e-4);
}

TEST(Hooks, PowerSGDKeepsSmallGradientsOf16BitFloats) {
  run_ranks(2, [](Rank& rank) {
    const auto state = std::make_shared<ddp::PowerSGDState>(
        ddp::PowerSGDOptions().process_group(rank.group).start_powerSGD_iter(2).min_compression_rate(1));
    Mlp module(32);
    fill_parameters(*module, 7);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
    net.register_comm_hook(ddp::fp16_compress_wrapper(ddp::powerSGD_hook(state)));
    double in_full = 0;
    for (int step = 0; step < 8; ++step) {
      net.zero_grad();
      (net(random_tensor({16, 8}, 1)).square().mean() * 1e-4).backward();
      const double norm = net->fc2->weight.grad().norm().item<double>();
      if (step == 0) in_full = norm;
      EXPECT_GT(norm, 0.2 * in_full) << "step " << step;
    }
    EXPECT_GT(state->compression_stats().rate, 1);
  });
}

TEST(Hooks, PowerSGDReducesSparseGradientsInFull) {
  for (const bool batched : {false, true}) {
    run_ranks(2, [&](Rank& rank) {
      Bag hooked, plain;
      fill_parameters(*hooked, 3);
      fill_parameters(*plain, 3);
      auto net = DistributedDataParallel(hooked, Options().process_group(rank.group));
      auto exact = DistributedDataParallel(plain, Options().process_group(rank.group));
      const auto state = std::make_shared<ddp::PowerSGDState>(
          ddp::PowerSGDOptions().process_group(rank.group).start_powerSGD_iter(2).min_compression_rate(1));
      net.register_comm_hook(batched ? ddp::batched_powerSGD_hook(state) : ddp::powerSGD_hook(state));
      for (int step = 0; step < 4; ++step) {
        const auto x = random_tensor({4, 8}, 10 * step + rank.rank);
        net.zero_grad();
        exact.zero_grad();
        net(x).square().mean().backward();
        exact(x).square().mean().backward();
        const auto gradient = hooked->bag->weight.grad();
        EXPECT_TRUE(gradient.is_sparse());
        EXPECT_LT(max_difference(gradient.to_dense(), plain->bag->weight.grad().to_dense()), 1e-6) << "step " << step;
      }
      EXPECT_GT(state->compression_stats().before, 0);
    });
  }
}

TEST(Hooks, PowerSGDBeginsAnewAfterAReset) {
  for (const bool batched : {false, true}) {
    for (const double bucket_cap_mb : {25.0, 2e-3}) {
      run_ranks(2, [&](Rank& rank) {
        const auto options = Options().process_group(rank.group).bucket_cap_mb(bucket_cap_mb);
        Mlp hooked(32), plain(32);
        fill_parameters(*hooked, 3);
        fill_parameters(*plain, 3);
        auto net = DistributedDataParallel(hooked, options);
        auto exact = DistributedDataParallel(plain, options);
        const auto state = std::make_shared<ddp::PowerSGDState>(
            ddp::PowerSGDOptions().process_group(rank.group).start_powerSGD_iter(2).min_compression_rate(1));
        net.register_comm_hook(
            ddp::bf16_compress_wrapper(batched ? ddp::batched_powerSGD_hook(state) : ddp::powerSGD_hook(state)));
        for (int step = 0; step < 7; ++step) {
          if (step == 4) net.reset();
          const double scale = step == 6 ? 0 : 1;  // compressed again, and no error of before comes back in
          const auto x = random_tensor({4, 8}, 10 * step + rank.rank);
          net.zero_grad();
          exact.zero_grad();
          (net(x).square().mean() * scale).backward();
          (exact(x).square().mean() * scale).backward();
          const auto difference = flat_gradients(*hooked) - flat_gradients(*plain);
          const double apart = difference.norm().item<double>();
          const double norm = flat_gradients(*plain).norm().item<double>();
          if (step == 2 || step == 3) {
            EXPECT_GT(apart, 0.05 * norm) << "step " << step << " was not compressed";
          } else {
            EXPECT_LE(apart, 0.02 * norm) << "step " << step;
          }
          auto other = flat_gradients(*hooked);
          std::vector<torch::Tensor> tensors{other};
          rank.group->broadcast(tensors)->wait();
          EXPECT_TRUE(other.equal(flat_gradients(*hooked))) << "step " << step;
        }
        EXPECT_EQ(state->iter(), 7);
      });
    }
  }
}

TEST(Hooks, PowerSGDGoesOnAfterAStepOfZeroOrNaNGradients) {
  for (const bool batched : {false, true}) {
    for (const double epsilon : {0.0, 1e-8}) {
      for (const double scale : {0.0, std::numeric_limits<double>::quiet_NaN()}) {
        run_ranks(2, [&](Rank& rank) {
          Mlp module(32);
          fill_parameters(*module, 3);
          auto net = DistributedDataParallel(module, Options().process_group(rank.group));
          const auto state = std::make_shared<ddp::PowerSGDState>(ddp::PowerSGDOptions()
                                                                      .process_group(rank.group)
                                                                      .start_powerSGD_iter(2)
                                                                      .min_compression_rate(1)
                                                                      .use_error_feedback(std::isnan(scale))
                                                                      .orthogonalization_epsilon(epsilon));
          net.register_comm_hook(batched ? ddp::batched_powerSGD_hook(state) : ddp::powerSGD_hook(state));
          for (int step = 0; step < 7; ++step) {
            net.zero_grad();
            (net(random_tensor({4, 8}, 10 * step + rank.rank)).square().mean() * (step == 3 ? scale : 1.0)).backward();
            const auto gradients = torch::cat({net->fc1->weight.grad().flatten(), net->fc2->weight.grad().flatten()});
            if (step == 3) {
              EXPECT_EQ(gradients.isnan().any().item<bool>(), std::isnan(scale)) << "NaN is not to be hidden";
              continue;
            }
            EXPECT_TRUE(gradients.isfinite().all().item<bool>()) << "step " << step;
            EXPECT_GT(gradients.norm().item<double>(), 1e-3) << "step " << step << ", epsilon " << epsilon;
            expect_equal_on_ranks(rank, flat_gradients(*net));
          }
        });
      }
    }
  }
}

TEST(Hooks, ThatReturnAnEmptyFutureAreNamed) {
  const auto errors = errors_of_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    net.register_comm_hook(ddp::CommHook("mine", [](ddp::GradBucket&) { return ddp::GradFuture(); }));
    net(torch::ones({1, 8})).sum().backward();
  });
  EXPECT_THAT(errors, ::testing::Each(::testing::HasSubstr("'mine' returned an empty future")));
}

TEST(Orthogonalize, GivesOrthonormalColumns) {
  for (const int64_t columns : {1, 2, 5}) {
    auto matrices = random_tensor({3, 9, columns}, 4);
    ddp::detail::orthogonalize(matrices, 0);
    EXPECT_LT(max_difference(torch::bmm(matrices.transpose(1, 2), matrices),
                             torch::eye(columns).expand({3, columns, columns})),
              1e-5);
  }
}

TEST(Hooks, PostLocalSGDReducesInSubgroupsAndAveragesModels) {
  std::vector<torch::Tensor> last(4), before_averaging(4);
  run_ranks(4, [&](Rank& rank) {
    const auto half = make_group(rank.store, rank.rank % 2, 2, rank.rank < 2 ? "low" : "high");
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    auto state = std::make_shared<ddp::PostLocalSGDState>(
        ddp::PostLocalSGDOptions().process_group(rank.group).subgroup(half).start_localSGD_iter(2));
    net.register_comm_hook(ddp::post_localSGD_hook(state));
    ddp::PeriodicModelAverager averager(/*period=*/3, /*warmup_steps=*/2, rank.group);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 6; ++step) {
      net.zero_grad();
      net(random_tensor({4, 8}, 10 * step + rank.rank)).square().mean().backward();
      optimizer.step();
      if (step == 5) before_averaging[rank.rank] = flat(*net);
      EXPECT_EQ(averager.average_parameters(net->parameters()), step == 2 || step == 5);
    }
    last[rank.rank] = flat(*net);
    EXPECT_EQ(state->iter(), 6);
  });
  EXPECT_TRUE(before_averaging[0].equal(before_averaging[1]));
  EXPECT_FALSE(before_averaging[0].equal(before_averaging[2]));
  for (int rank = 1; rank < 4; ++rank) EXPECT_TRUE(last[rank].equal(last[0]));
  EXPECT_THROW(ddp::PostLocalSGDState{ddp::PostLocalSGDOptions()}, ddp::ArgumentError);
  EXPECT_THROW(ddp::PeriodicModelAverager(0), ddp::ArgumentError);
}

TEST(Hooks, SeeTheirGradientsAndAreRegisteredOnce) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    EXPECT_THROW(net.register_comm_hook(ddp::CommHook("empty", nullptr)), ddp::ArgumentError);
    net.register_comm_hook([&](ddp::GradBucket& bucket) {
      EXPECT_EQ(bucket.getGradients().size(), bucket.getParameters().size());
      return ddp::detail::mean_over_ranks(rank.group, bucket.getBuffer());
    });
    EXPECT_THROW(net.register_comm_hook(ddp::noop_hook()), ddp::StateError);
    EXPECT_THROW(net.register_builtin_comm_hook(c10d::BuiltinCommHookType::ALLREDUCE), ddp::StateError);
    net(torch::ones({1, 8})).sum().backward();
    EXPECT_EQ(net.logging_data().strs_map.at("comm_hook"), "custom");
  });
}

}  // namespace
}  // namespace lockstep::test
