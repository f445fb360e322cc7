// Does training on several ranks give what one process gives with the whole batch, and are replicas bit-equal after
// every step?
#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

namespace F = torch::nn::functional;
using ddp::DistributedDataParallel;
using ddp::Options;

constexpr int kSteps = 20;
constexpr int64_t kBatch = 24;  // of all ranks together; every number of ranks up to 4 divides it

struct Batch {
  torch::Tensor x, y;
};

Batch batch_of(int step, int64_t begin = 0, int64_t count = kBatch) {
  const auto x = random_tensor({kBatch, 8}, 1000 + step);
  const auto y = (random_tensor({kBatch}, 2000 + step) * 2).to(torch::kLong).remainder(4);
  return {x.narrow(0, begin, count), y.narrow(0, begin, count)};
}

template <class Net>
torch::optim::SGD optimizer_of(const Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05));
}

// What every rank has after every step.
using History = std::vector<torch::Tensor>;

template <class M>
History train_replicas(int ranks, const Options& options) {
  std::vector<History> histories(ranks);
  run_ranks(ranks, [&](Rank& rank) {
    auto module = std::make_shared<M>();
    fill_parameters(*module, 7 + rank.rank);  // rank 0's values are the ones that count
    auto chosen = options;
    auto net = DistributedDataParallel(module, chosen.process_group(rank.group));
    auto optimizer = optimizer_of(net);
    const int64_t share = kBatch / rank.size;
    for (int step = 0; step < kSteps; ++step) {
      net.zero_grad();
      const auto batch = batch_of(step, rank.rank * share, share);
      F::cross_entropy(net(batch.x), batch.y).backward();
      optimizer.step();
      histories[rank.rank].push_back(flat(*net, /*buffers=*/false));
    }
    EXPECT_EQ(net.steps(), kSteps);
  });
  for (int rank = 1; rank < ranks; ++rank) {
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_TRUE(histories[rank].at(step).equal(histories[0].at(step))) << "rank " << rank << ", step " << step;
    }
  }
  return histories[0];
}

// One process. parts = 1: the whole batch; else the mean of the gradients of its parts, as replicas have it.
template <class M>
History train_alone(int parts) {
  auto module = std::make_shared<M>();
  fill_parameters(*module, 7);
  auto optimizer = optimizer_of(module);
  History history;
  const int64_t share = kBatch / parts;
  for (int step = 0; step < kSteps; ++step) {
    module->zero_grad();
    for (int part = 0; part < parts; ++part) {
      const auto batch = batch_of(step, part * share, share);
      (F::cross_entropy(module->forward(batch.x), batch.y) / parts).backward();
    }
    optimizer.step();
    history.push_back(flat(*module, false));
  }
  return history;
}

template <class M>
class Replicas : public ::testing::Test {};
using Models = ::testing::Types<MlpImpl, ConvNetImpl, EncoderImpl, BagImpl, TiedImpl>;
TYPED_TEST_SUITE(Replicas, Models);

TYPED_TEST(Replicas, EqualOneProcessOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto together = train_replicas<TypeParam>(ranks, Options());
    const auto alone = train_alone<TypeParam>(ranks);
    EXPECT_LT(max_difference(together.back(), alone.back()), 2e-6) << ranks << " ranks";
    if (!std::is_same_v<TypeParam, ConvNetImpl>) {  // BatchNorm's statistics are those of a part
      EXPECT_LT(max_difference(together.back(), train_alone<TypeParam>(1).back()), 2e-6) << ranks << " ranks";
    }
  }
}

TYPED_TEST(Replicas, AreBitEqualToOneProcessWhereDivisionIsExact) {
  const auto together = train_replicas<TypeParam>(1, Options());
  EXPECT_TRUE(together.back().equal(train_alone<TypeParam>(1).back()));
}

TYPED_TEST(Replicas, AreTheSameWithEveryWayToReduce) {
  const auto reference = train_replicas<TypeParam>(2, Options()).back();
  const auto expect_same = [&](const char* what, const Options& options) {
    EXPECT_TRUE(train_replicas<TypeParam>(2, options).back().equal(reference)) << what;
  };
  if (!std::is_same_v<TypeParam, BagImpl>) {  // sparse gradients are no views
    expect_same("gradient_as_bucket_view", Options().gradient_as_bucket_view(true));
    expect_same("static_graph and views", Options().static_graph(true).gradient_as_bucket_view(true));
  }
  expect_same("static_graph", Options().static_graph(true));
  expect_same("find_unused_parameters", Options().find_unused_parameters(true));
  expect_same("a bucket a parameter", Options().bucket_cap_mb(1e-5));
  expect_same("bucket_cap_mb_list", Options().bucket_cap_mb_list({2e-4, 1e-3}));
  expect_same("broadcast_buffers off", Options().broadcast_buffers(false));
  expect_same("skip_all_reduce_unused_params",
              Options().find_unused_parameters(true).skip_all_reduce_unused_params(true));
}

TEST(Accumulation, OverMicroBatchesEqualsTheLargeBatchAndSavesReductions) {
  constexpr int kMicro = 3;
  for (const bool views : {false, true}) {
    for (const bool use_no_sync : {true, false}) {
      History after;
      uint64_t collectives[2] = {0, 0};
      run_ranks(2, [&](Rank& rank) {
        Mlp module;
        fill_parameters(*module, 7);
        auto net = DistributedDataParallel(module, Options().process_group(rank.group).gradient_as_bucket_view(views));
        auto optimizer = optimizer_of(net);
        const int64_t share = kBatch / 2, micro_share = share / kMicro;
        const auto before = [&] { return rank.group->getBackend(c10::DeviceType::CPU)->getSequenceNumberForGroup(); };
        uint64_t start = 0;
        for (int step = 0; step < kSteps; ++step) {
          if (step == 2) start = before();  // buckets have been rebuilt by then
          net.zero_grad(false);
          for (int micro = 0; micro < kMicro; ++micro) {
            const auto batch = batch_of(step, rank.rank * share + micro * micro_share, micro_share);
            std::optional<ddp::NoSync> scope;
            if (use_no_sync && micro + 1 < kMicro) scope.emplace(net);
            (F::cross_entropy(net(batch.x), batch.y) / kMicro).backward();
          }
          optimizer.step();
          if (rank.rank == 0) after.push_back(flat(*net));
        }
        collectives[rank.rank] = before() - start;
      });
      EXPECT_LT(max_difference(after.back(), train_alone<MlpImpl>(1).back()), 2e-6) << views << use_no_sync;
      const uint64_t expected = static_cast<uint64_t>(kSteps - 2) * (use_no_sync ? 1 : kMicro);
      EXPECT_EQ(collectives[0], expected);
      EXPECT_EQ(collectives[1], expected);
    }
  }
}

TEST(NoSync, NestsAndRestoresOnExceptions) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    EXPECT_TRUE(net.require_backward_grad_sync());
    {
      auto outer = net.no_sync();
      EXPECT_FALSE(net.require_backward_grad_sync());
      try {
        auto inner = net.no_sync();
        throw std::runtime_error("in the scope");
      } catch (const std::runtime_error&) {
      }
      EXPECT_FALSE(net.require_backward_grad_sync());
    }
    EXPECT_TRUE(net.require_backward_grad_sync());
    net.require_backward_grad_sync(false);
    net(torch::ones({1, 8}) * (rank.rank + 1)).sum().backward();
    net.require_backward_grad_sync(true);
    auto gathered = flat_gradients(*net);
    std::vector<std::vector<torch::Tensor>> all{{torch::empty_like(gathered), torch::empty_like(gathered)}};
    std::vector<torch::Tensor> mine{gathered};
    rank.group->allgather(all, mine)->wait();
    EXPECT_FALSE(all[0][0].equal(all[0][1])) << "gradients of a no_sync step were reduced";
  });
}

TEST(NoSync, BeforeTheFirstStepOfAStaticGraphCountsNothing) {
  const auto train = [](const Options& options) {
    torch::Tensor result;
    run_ranks(2, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 3);
      auto chosen = options;
      auto net = DistributedDataParallel(module, chosen.process_group(rank.group));
      auto optimizer = optimizer_of(net);
      for (int step = 0; step < 4; ++step) {
        net.zero_grad();
        for (int micro = 0; micro < 3; ++micro) {
          net.require_backward_grad_sync(micro == 2);
          net(batch_of(step * 3 + micro, rank.rank * 12, 12).x).sum().backward();
        }
        optimizer.step();
      }
      if (rank.rank == 0) result = flat(*net);
    });
    return result;
  };
  EXPECT_TRUE(train(Options().static_graph(true)).equal(train(Options())));
}

TEST(UnusedParameters, AreFoundAndKeepTheirValues) {
  for (const auto& options : {Options().find_unused_parameters(true), Options().static_graph(true),
                              Options().find_unused_parameters(true).gradient_as_bucket_view(true),
                              Options().find_unused_parameters(true).skip_all_reduce_unused_params(true)}) {
    const auto together = train_replicas<PartlyUsedImpl>(2, options);
    EXPECT_LT(max_difference(together.back(), train_alone<PartlyUsedImpl>(1).back()), 2e-6);
  }
}

TEST(UnusedParameters, ThatAreIgnoredStayEachRanksOwn) {
  std::vector<torch::Tensor> skipped(2), used(2);
  run_ranks(2, [&](Rank& rank) {
    PartlyUsed module;
    fill_parameters(*module, 7 + rank.rank);
    auto net = DistributedDataParallel(
        module, Options().process_group(rank.group).ignored_parameters({"skipped.weight", "skipped.bias"}));
    auto optimizer = optimizer_of(net);
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net(batch_of(step).x).sum().backward();
      optimizer.step();
    }
    used[rank.rank] = flat(*net->used);
    skipped[rank.rank] = flat(*net->skipped);
  });
  EXPECT_TRUE(used[0].equal(used[1]));
  EXPECT_FALSE(skipped[0].equal(skipped[1]));
}

TEST(UnusedParameters, MayDifferBetweenRanksAndSteps) {
  run_ranks(2, [](Rank& rank) {
    PartlyUsed module;
    fill_parameters(*module, 3);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group).find_unused_parameters(true));
    for (int step = 0; step < 4; ++step) {
      net.zero_grad();
      net->skip = (rank.rank + step) % 2 == 0;
      net(batch_of(step).x).sum().backward();
      // The rank that used it shares its gradient with the one that did not.
      ASSERT_TRUE(net->skipped->weight.grad().defined());
      EXPECT_GT(net->skipped->weight.grad().abs().sum().item<double>(), 0);
    }
  });
}

TEST(Groups, TwoHalvesTrainApart) {
  History last(4);
  run_ranks(4, [&](Rank& rank) {
    auto half = make_group(rank.store, rank.rank % 2, 2, rank.rank < 2 ? "low" : "high");
    Mlp module;
    fill_parameters(*module, 11);
    auto net = DistributedDataParallel(module, Options().process_group(half));
    auto optimizer = optimizer_of(net);
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net(batch_of(step, rank.rank * 6, 6).x).sum().backward();
      optimizer.step();
    }
    last[rank.rank] = flat(*net);
  });
  EXPECT_TRUE(last[0].equal(last[1]));
  EXPECT_TRUE(last[2].equal(last[3]));
  EXPECT_FALSE(last[0].equal(last[2]));
}

TEST(Groups, SeveralWrappedModulesTrainTogether) {
  run_ranks(2, [&](Rank& rank) {
    auto one = DistributedDataParallel(Mlp(), Options().process_group(rank.group));
    auto two = DistributedDataParallel(Encoder(), Options().process_group(rank.group));
    for (int step = 0; step < 3; ++step) {
      one.zero_grad();
      two.zero_grad();
      const auto batch = batch_of(step, rank.rank * 12, 12);
      (one(batch.x) + two(batch.x)).sum().backward();
      for (const auto& net : {flat_gradients(*one), flat_gradients(*two)}) {
        std::vector<std::vector<torch::Tensor>> all{{torch::empty_like(net), torch::empty_like(net)}};
        std::vector<torch::Tensor> mine{net};
        rank.group->allgather(all, mine)->wait();
        EXPECT_TRUE(all[0][0].equal(all[0][1]));
      }
    }
  });
}

TEST(DoubleBackward, GoesThroughTheWrapper) {
  // A penalty on the gradient of the output by the input, as a gradient-penalty loss has it.
  const auto penalty_step = [](auto& net, const torch::Tensor& given) {
    auto x = given.clone().requires_grad_();
    const auto y = net->forward(x).sum();
    const auto gradient = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    return y + gradient.square().sum();
  };
  torch::Tensor together;
  run_ranks(2, [&](Rank& rank) {
    Mlp module;
    fill_parameters(*module, 5);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
    const auto* pointer = &net;
    penalty_step(pointer, batch_of(0, rank.rank * 12, 12).x).backward();
    if (rank.rank == 0) together = flat_gradients(*net);
  });
  Mlp module;
  fill_parameters(*module, 5);
  for (int part = 0; part < 2; ++part) (penalty_step(module, batch_of(0, part * 12, 12).x) / 2).backward();
  EXPECT_LT(max_difference(together, flat_gradients(*module)), 1e-5);
}

}  // namespace
}  // namespace lockstep::test
