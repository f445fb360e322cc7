// Uneven inputs: ranks that are out of data answer for those that are not, and all end with one model.
#include <gmock/gmock.h>

#include <functional>
#include <vector>

#include "collectives/transport/libtorch_version.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_module.h"
#include "ddp/sync_batch_norm.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::JoinOptions;
using ddp::Options;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Rank r has 2 + 2r batches.
int batches_of(int rank) { return 2 + 2 * rank; }
torch::Tensor uneven_batch_of(int rank, int step) { return random_tensor({4, 8}, 10 * step + rank); }

template <class Model>
std::vector<torch::Tensor> train_joined(int ranks, const Options& options, const JoinOptions& join_options,
                                        bool accumulate = false) {
  std::vector<torch::Tensor> last(ranks);
  run_ranks(ranks, [&](Rank& rank) {
    Model module;
    fill_parameters(*module, 5);
    auto chosen = options;
    auto net = DistributedDataParallel(module, chosen.process_group(rank.group));
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    net.join(
        [&] {
          for (int step = 0; step < batches_of(rank.rank); ++step) {
            if (accumulate) net.require_backward_grad_sync(step % 2 == 1);
            net(uneven_batch_of(rank.rank, step)).square().mean().backward();
            if (accumulate && step % 2 == 0) continue;
            optimizer.step();
            net.zero_grad();
          }
        },
        join_options);
    net.require_backward_grad_sync(true);
    last[rank.rank] = flat(*net);
    // And after it training goes on as ever.
    net(uneven_batch_of(rank.rank, 90)).sum().backward();
  });
  return last;
}

TEST(Join, EndsWithTheModelOfARankThatTrainedLast) {
  const std::vector<Options> all = {
      Options(),
      Options().find_unused_parameters(true),
      Options().gradient_as_bucket_view(true),
      Options().bucket_cap_mb(1e-4),
      Options().static_graph(true),
      Options().static_graph(true).find_unused_parameters(true),
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 15)
      Options().lazy_bucket_allocation(true),
      Options().lazy_bucket_allocation(true).bucket_cap_mb(1e-4),
#endif
  };
  for (const auto& options : all) {
    const auto last = train_joined<Mlp>(3, options, JoinOptions());
    EXPECT_TRUE(last[1].equal(last[0]));
    EXPECT_TRUE(last[2].equal(last[0]));
  }
  const auto buffers = train_joined<ConvNet>(2, Options(), JoinOptions());
  EXPECT_TRUE(buffers[1].equal(buffers[0]));
  const auto accumulated = train_joined<Mlp>(2, Options(), JoinOptions(), /*accumulate=*/true);
  EXPECT_TRUE(accumulated[1].equal(accumulated[0]));
}

TEST(Join, DividesByAllRanksOrByThoseThatTrain) {
  for (const bool initial : {true, false}) {
    const auto joined = train_joined<Mlp>(2, Options(), JoinOptions().divide_by_initial_world_size(initial))[0];
    Mlp module;
    fill_parameters(*module, 5);
    torch::optim::SGD optimizer(module->parameters(), 0.05);
    for (int step = 0; step < batches_of(1); ++step) {
      module->zero_grad();
      const int training = step < batches_of(0) ? 2 : 1;
      for (int rank = 2 - training; rank < 2; ++rank) {
        (module(uneven_batch_of(rank, step)).square().mean() / (initial ? 2 : training)).backward();
      }
      optimizer.step();
    }
    EXPECT_LT(max_difference(joined, flat(*module)), 1e-6) << initial;
  }
}

TEST(Join, LeavesNothingOfItsDivisionBehind) {
  for (const bool throws : {false, true}) {
    run_ranks(3, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 5);
      auto net = DistributedDataParallel(module, Options().process_group(rank.group));
      const auto loop = [&] {
        for (int step = 0; step < (throws ? 3 : batches_of(rank.rank)); ++step) {
          net.zero_grad();
          net(uneven_batch_of(rank.rank, step)).square().mean().backward();
        }
        if (throws) throw std::runtime_error("out of the loop");
      };
      const auto message = message_of([&] { net.join(loop, JoinOptions().divide_by_initial_world_size(false)); });
      EXPECT_EQ(message, throws ? "out of the loop" : "");
      for (int step = 20; step < 23; ++step) {
        Mlp alone;
        fill_parameters(*alone, 5);
        for (int each = 0; each < 3; ++each) (alone(uneven_batch_of(each, step)).square().mean() / 3).backward();
        net.zero_grad();
        net(uneven_batch_of(rank.rank, step)).square().mean().backward();
        EXPECT_LT(max_difference(flat_gradients(*module), flat_gradients(*alone)), 1e-6) << "step " << step;
      }
    });
  }
}

TEST(Join, DividesTheGradientsOfEveryModuleAlike) {
  run_ranks(3, [](Rank& rank) {
    Mlp modules[2];
    std::vector<DistributedDataParallel<MlpImpl>> nets;
    for (auto& module : modules) {
      fill_parameters(*module, 5);
      nets.emplace_back(module, Options().process_group(rank.group));
    }
    ddp::join(
        {nets[0], nets[1]},
        [&] {
          for (int step = 0; step < batches_of(rank.rank); ++step) {
            for (auto& net : nets) {
              net.zero_grad();
              net(uneven_batch_of(rank.rank, step)).square().mean().backward();
            }
            EXPECT_TRUE(flat_gradients(*modules[1]).equal(flat_gradients(*modules[0]))) << "step " << step;
          }
        },
        JoinOptions().divide_by_initial_world_size(false));
  });
}

TEST(Join, AnswersForwardsThatRecordNoGradients) {
  for (const int batches_of_rank_0 : {0, 2}) {
    run_ranks(2, [&](Rank& rank) {
      ConvNet module;
      fill_parameters(*module, 5);
      auto net = DistributedDataParallel(module, Options().process_group(rank.group));
      torch::optim::SGD optimizer(net.parameters(), 0.05);
      net.join([&] {
        for (int step = 0; step < (rank.rank == 0 ? batches_of_rank_0 : 4); ++step) {
          net.zero_grad();
          net(uneven_batch_of(rank.rank, step)).square().mean().backward();
          optimizer.step();
          const torch::NoGradGuard no_grad;
          net(uneven_batch_of(rank.rank, step));
        }
      });
      auto values = flat(*module);
      std::vector<torch::Tensor> tensors{values};
      rank.group->broadcast(tensors)->wait();
      EXPECT_TRUE(values.equal(flat(*module)));
    });
  }
}

TEST(Join, TakesRanksWithoutAnyData) {
  const auto train = [](const Options& options) {
    std::vector<torch::Tensor> last(2);
    run_ranks(2, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 5);
      auto chosen = options;
      auto net = DistributedDataParallel(module, chosen.process_group(rank.group));
      torch::optim::SGD optimizer(net.parameters(), 0.05);
      const auto step = [&](int number) {
        net.zero_grad();
        net(uneven_batch_of(rank.rank, number)).square().mean().backward();
        optimizer.step();
      };
      // First rank 1 has data, then rank 0, then both.
      for (int epoch = 0; epoch < 2; ++epoch) {
        net.join([&] {
          for (int number = 0; rank.rank != epoch && number < 4; ++number) step(10 * epoch + number);
        });
      }
      for (int number = 20; number < 24; ++number) step(number);
      last[rank.rank] = flat(*module);
    });
    EXPECT_TRUE(last[1].equal(last[0]));
    return last[0];
  };
  const auto plain = train(Options());
  for (const auto& options : {Options().static_graph(true), Options().find_unused_parameters(true),
                              Options().static_graph(true).gradient_as_bucket_view(true),
                              Options().static_graph(true).find_unused_parameters(true)}) {
    EXPECT_LT(max_difference(train(options), plain), 1e-6);
  }
}

TEST(Join, CanThrowOnEveryRankInstead) {
  const auto errors = errors_of_ranks(3, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    net.join(
        [&] {
          for (int step = 0; step < batches_of(rank.rank); ++step)
            net(uneven_batch_of(rank.rank, step)).sum().backward();
        },
        JoinOptions().throw_on_early_termination(true));
  });
  EXPECT_THAT(errors, Each(HasSubstr("no more inputs")));
}

TEST(Join, RefusesModulesThatRunOtherwiseThanItAnswers) {
  const auto errors_of =
      [](const std::function<void(DistributedDataParallel<MlpImpl>&, DistributedDataParallel<MlpImpl>&)>& step) {
        return errors_of_ranks(2, [&](Rank& rank) {
          auto one = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
          auto two = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
          ddp::join({one, two}, [&] { step(one, two); });
        });
      };
  const auto x = uneven_batch_of(0, 0);
  EXPECT_THAT(errors_of([&](auto& one, auto& two) { (one(x).sum() + two(x).sum()).backward(); }),
              Each(HasSubstr("module 2 of 2 came while the backward of another one was still to come")));
  EXPECT_THAT(errors_of([&](auto&, auto& two) { two(x).sum().backward(); }),
              Each(HasSubstr("module 2 of 2 came where that of module 1 was due")));
  EXPECT_THAT(errors_of([&](auto& one, auto&) {
                for (int i = 0; i < 2; ++i) one(x).sum().backward();
              }),
              Each(HasSubstr("module 1 of 2 came where that of module 2 was due")));
}

TEST(Join, RefusesWhatItCannotAnswer) {
  const auto join = [](auto& net, const JoinOptions& options) {
    net.join([&] { net(uneven_batch_of(0, 0)).sum().backward(); }, options);
  };
  const auto hooked = [&](const JoinOptions& options) {
    return errors_of_ranks(2, [&](Rank& rank) {
      auto net = DistributedDataParallel(ConvNet(), Options().process_group(rank.group));
      net.register_buffer_comm_hook([](const auto&) { return std::vector<ddp::GradFuture>(); });
      join(net, options);
    });
  };
  EXPECT_THAT(hooked(JoinOptions()), Each(HasSubstr("buffer hook")));
  EXPECT_THAT(hooked(JoinOptions().throw_on_early_termination(true)), Each(Not(HasSubstr("buffer hook"))));
  const auto synchronised = [&](bool train) {
    return errors_of_ranks(2, [&](Rank& rank) {
      ConvNet module;
      ddp::convert_sync_batchnorm(*module, rank.group);
      auto net = DistributedDataParallel(module, Options().process_group(rank.group));
      net.train(train);
      join(net, JoinOptions());
    });
  };
  EXPECT_THAT(synchronised(true), Each(HasSubstr("SyncBatchNorm")));
  EXPECT_THAT(synchronised(false), Each(std::string()));
  EXPECT_THAT(errors_of_ranks(2,
                              [](Rank& rank) {
                                auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
                                net.join([&] { net.reset(); });
                              }),
              Each(HasSubstr("left the join within its loop")));
}

TEST(Join, RefusesAForwardBeforeTheBackwardOfTheLast) {
  EXPECT_THAT(errors_of_ranks(2,
                              [](Rank& rank) {
                                auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
                                net.join([&] {
                                  (net(uneven_batch_of(0, 0)).sum() + net(uneven_batch_of(0, 1)).sum()).backward();
                                });
                              }),
              Each(HasSubstr("while the backward of the one before was still to come")));
}

TEST(Join, TakesARankThatNeverHadASparseGradient) {
  for (const auto& given : {Options(), Options().static_graph(true), Options().find_unused_parameters(true)}) {
    run_ranks(2, [&](Rank& rank) {
      Bag module;
      fill_parameters(*module, 5);
      auto options = given;
      auto net = DistributedDataParallel(module, options.process_group(rank.group));
      net.join([&] {
        for (int step = 0; step < 3 * rank.rank; ++step) {
          net.zero_grad();
          net(uneven_batch_of(rank.rank, step)).square().mean().backward();
        }
      });
      net.zero_grad();
      net(uneven_batch_of(rank.rank, 9)).square().mean().backward();
      expect_reduced(rank, *net);
    });
  }
}

TEST(Join, TakesSeveralModulesAndNone) {
  run_ranks(2, [](Rank& rank) {
    auto one = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    auto two = DistributedDataParallel(Encoder(), Options().process_group(rank.group));
    ddp::join({one, two}, [&] {
      for (int step = 0; step < batches_of(rank.rank); ++step) {
        const auto x = uneven_batch_of(rank.rank, step);
        one(x).sum().backward();
        two(x).sum().backward();
      }
    });
    EXPECT_THROW(ddp::join({}, [] {}), ddp::ArgumentError);
    int ran = 0;
    one.join([&] { ++ran; }, JoinOptions().enable(false));
    EXPECT_EQ(ran, 1);
  });
}

}  // namespace
}  // namespace lockstep::test
