// Statistics over all ranks: forward, backward and running statistics equal one process with the whole batch.
#include "ddp/sync_batch_norm.h"
#include "ddp/distributed_data_parallel.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::Options;

TEST(SyncBatchNorm, EqualsOneProcessWithTheWholeBatchAlsoInUnevenParts) {
  for (const bool affine : {true, false}) {
    for (const auto& shape : {std::vector<int64_t>{7, 3}, {7, 3, 5}, {7, 3, 2, 4}, {7, 3, 2, 2, 2}}) {
      const auto whole = random_tensor(shape, 1) * 3 + 100;  // far from zero: cancellation would show
      const auto weights = random_tensor(shape, 2);
      torch::nn::BatchNorm1d one(torch::nn::BatchNormOptions(3).affine(affine));
      auto x = whole.clone().requires_grad_();
      const auto y =
          torch::batch_norm(x, one->weight, one->bias, one->running_mean, one->running_var, true, 0.1, 1e-5, false);
      (y * weights).sum().backward();

      run_ranks(3, [&](Rank& rank) {
        // 4, 3 and no samples.
        const int64_t begin = rank.rank == 0 ? 0 : 4, count = rank.rank == 0 ? 4 : (rank.rank == 1 ? 3 : 0);
        ddp::SyncBatchNorm norm(torch::nn::BatchNormOptions(3).affine(affine), rank.group);
        auto mine = whole.narrow(0, begin, count).clone().requires_grad_();
        const auto out = norm(mine);
        (out * weights.narrow(0, begin, count)).sum().backward();
        if (count > 0) {
          EXPECT_LT((out - y.narrow(0, begin, count)).abs().max().item<double>(), 2e-4);
          EXPECT_LT((mine.grad() - x.grad().narrow(0, begin, count)).abs().max().item<double>(), 2e-4);
        }
        EXPECT_TRUE(torch::allclose(norm->running_mean, one->running_mean, 1e-5));
        EXPECT_TRUE(torch::allclose(norm->running_var, one->running_var, 1e-4));
        if (!affine) return;
        auto sums = torch::stack({norm->weight.grad(), norm->bias.grad()});
        std::vector<torch::Tensor> tensors{sums};
        rank.group->allreduce(tensors)->wait();
        EXPECT_TRUE(torch::allclose(sums[0], one->weight.grad(), 1e-3, 1e-3));
        EXPECT_TRUE(torch::allclose(sums[1], one->bias.grad(), 1e-3, 1e-3));
      });
    }
  }
}

TEST(SyncBatchNorm, IsBatchNormInEvaluationAndHasItsArchive) {
  run_ranks(1, [](Rank& rank) {
    ddp::SyncBatchNorm norm(torch::nn::BatchNormOptions(3).momentum(std::nullopt), rank.group);
    torch::nn::BatchNorm2d plain(torch::nn::BatchNormOptions(3).momentum(std::nullopt));
    for (int step = 0; step < 3; ++step) {
      const auto x = random_tensor({4, 3, 2, 2}, step);
      EXPECT_TRUE(torch::allclose(norm(x), plain(x), 1e-4, 1e-5));
    }
    norm->eval();
    plain->eval();
    const auto x = random_tensor({4, 3, 2, 2}, 9);
    EXPECT_TRUE(torch::allclose(norm(x), plain(x), 1e-4, 1e-5));
    std::stringstream archive;
    torch::save(plain, archive);
    torch::load(norm, archive);
    EXPECT_TRUE(norm->running_var.equal(plain->running_var));
    EXPECT_THROW(ddp::sync_batch_norm(torch::ones({3}), {}, {}, {}, {}, 0.1, 1e-5, rank.group), ddp::ArgumentError);
  });
}

// A norm of each kind, without running statistics.
struct UntrackedImpl : torch::nn::Module {
  explicit UntrackedImpl(const Group& group)
      : plain(register_module("plain",
                              torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(8).track_running_stats(false)))),
        sync(register_module("sync",
                             ddp::SyncBatchNorm(torch::nn::BatchNormOptions(8).track_running_stats(false), group))) {}
  torch::Tensor forward(const torch::Tensor& x) { return sync(plain(x) * x); }
  torch::nn::BatchNorm1d plain;
  ddp::SyncBatchNorm sync;
};
TORCH_MODULE(Untracked);

TEST(SyncBatchNorm, EvaluatesLocallyAlsoWithoutRunningStatistics) {
  run_ranks(2, [](Rank& rank) {
    Untracked module(rank.group);
    EXPECT_EQ(ddp::convert_sync_batchnorm(*module, rank.group), 1);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
    net(random_tensor({6, 8}, rank.rank)).sum().backward();
    if (rank.rank != 0) return;
    net.eval();
    const torch::NoGradGuard no_grad;
    const auto x = random_tensor({6, 8}, 2);
    const auto normalised = [](const torch::Tensor& y) {
      return torch::batch_norm(y, {}, {}, {}, {}, /*training=*/true, 0, 1e-5, false);
    };
    EXPECT_LT(max_difference(net(x), normalised(normalised(x) * x)), 1e-5);
  });
}

TEST(SyncBatchNorm, TakesModulesOf16BitFloats) {
  const auto x = random_tensor({8, 3, 4}, 1);
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    torch::nn::BatchNorm1d one(torch::nn::BatchNormOptions(3));
    one->to(type);
    const auto y = one(x.to(type));
    y.square().sum().backward();
    run_ranks(2, [&](Rank& rank) {
      ddp::SyncBatchNorm norm(torch::nn::BatchNormOptions(3), rank.group);
      norm->to(type);
      const auto mine = norm(x.narrow(0, 4 * rank.rank, 4).to(type));
      EXPECT_EQ(mine.scalar_type(), type);
      EXPECT_LT(max_difference(mine.to(torch::kFloat), y.narrow(0, 4 * rank.rank, 4).to(torch::kFloat)), 0.05);
      EXPECT_TRUE(torch::allclose(norm->running_var.to(torch::kFloat), one->running_var.to(torch::kFloat), 0.02));
      mine.square().sum().backward();
      auto gradient = norm->weight.grad().to(torch::kFloat);
      std::vector<torch::Tensor> tensors{gradient};
      rank.group->allreduce(tensors)->wait();
      EXPECT_TRUE(torch::allclose(gradient, one->weight.grad().to(torch::kFloat), 0.05));
    });
  }
}

TEST(SyncBatchNorm, ConvertedModulesTrainLikeOneProcess) {
  const auto train = [](const auto& net, ConvNet& module, int64_t begin, int64_t count) {
    torch::optim::SGD optimizer(module->parameters(), 0.05);
    for (int step = 0; step < 20; ++step) {
      module->zero_grad();
      net(random_tensor({12, 8}, step).narrow(0, begin, count)).square().mean().backward();
      optimizer.step();
    }
  };
  ConvNet alone;
  fill_parameters(*alone, 3);
  train([&](const torch::Tensor& x) { return alone(x); }, alone, 0, 12);
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](Rank& rank) {
      ConvNet module;
      fill_parameters(*module, 3);
      EXPECT_EQ(ddp::convert_sync_batchnorm(*module, rank.group), 2);
      auto net = DistributedDataParallel(module, Options().process_group(rank.group));
      train([&](const torch::Tensor& x) { return net(x); }, module, rank.rank * 12 / ranks, 12 / ranks);
      EXPECT_LT(max_difference(flat(*module), flat(*alone)), 5e-5) << ranks << " ranks";
    });
  }
  // What was not converted is left alone.
  run_ranks(2, [&](Rank& rank) {
    ConvNet module;
    fill_parameters(*module, 3);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group));
    train([&](const torch::Tensor& x) { return net(x); }, module, rank.rank * 6, 6);
    EXPECT_GT(max_difference(flat(*module, false), flat(*alone, false)), 1e-4);
  });
}

TEST(SyncBatchNorm, MayBeConvertedAfterWrapping) {
  run_ranks(2, [](Rank& rank) {
    const auto mean_after = [&](bool wrap_first) {
      ConvNet module;
      fill_parameters(*module, 3);
      if (!wrap_first) ddp::convert_sync_batchnorm(*module, rank.group);
      auto net = DistributedDataParallel(module, Options().process_group(rank.group));
      if (wrap_first) {
        const torch::NoGradGuard no_grad;
        net.eval();
        net(random_tensor({4, 8}, rank.rank));
        net.train();
        ddp::convert_sync_batchnorm(*module, rank.group);
      }
      net(random_tensor({4, 8}, rank.rank)).sum().backward();
      return module->norm1->running_mean.clone();
    };
    const auto mean = mean_after(/*wrap_first=*/true);
    expect_equal_on_ranks(rank, mean);
    EXPECT_TRUE(mean.equal(mean_after(false)));
  });
}

}  // namespace
}  // namespace lockstep::test
