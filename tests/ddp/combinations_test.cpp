// Every gradient is the mean of the ranks' own, whichever options come together: views, static graph, unused
// parameters, hooks, mixed precision, micro-steps under no_sync, joins with uneven batches and what follows them, and
// every way to clear gradients.
#include <fmt/format.h>

#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_module.h"
#include "ddp/hooks/comm_hooks.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::JoinOptions;
using ddp::Options;

enum class Clear { kByWrapper, kToNoneAfterForward, kToZeroAfterForward };
enum class Joined { kNever, kByAll, kByThoseThatTrain };

struct Combination {
  bool views, fixed_graph, find_unused, hook, low_precision, accumulate;
  Clear clear;
  Joined joined;

  std::string text() const {
    return fmt::format(
        "views {}, static_graph {}, find_unused {}, hook {}, mixed_precision {}, no_sync {}, clear {}, join {}", views,
        fixed_graph, find_unused, hook, low_precision, accumulate, static_cast<int>(clear), static_cast<int>(joined));
  }
};

std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  for (int bits = 0; bits < 64; ++bits) {
    for (const auto clear : {Clear::kByWrapper, Clear::kToNoneAfterForward, Clear::kToZeroAfterForward}) {
      for (const auto joined : {Joined::kNever, Joined::kByAll, Joined::kByThoseThatTrain}) {
        const auto has = [&](int bit) { return (bits >> bit & 1) != 0; };
        const Combination each{has(0), has(1), has(2), has(3), has(4), has(5), clear, joined};
        // Mixed precision has a hook of its own; gradients of micro-steps must not be cleared before the last one.
        if (each.low_precision && (each.find_unused || each.hook)) continue;
        if (!each.views && clear != Clear::kByWrapper) continue;  // then there is nothing special about them
        if (each.accumulate && clear != Clear::kByWrapper) continue;
        all.push_back(each);
      }
    }
  }
  return all;
}

constexpr int kRanks = 2;

torch::Tensor micro_batch_of(int rank, int step, int micro) {
  return random_tensor({4, 8}, 1000 * micro + 10 * step + rank + 1);
}

template <class Net>
torch::Tensor loss_of(Net&& net, const torch::Tensor& x) {
  return net->forward(x).to(torch::kFloat).square().mean();
}

// One wrapper that trains, and the mean of the gradients that the bare module has on the batches of all ranks that
// train.
class Trained {
 public:
  Trained(Rank& rank, const Combination& combination)
      : rank_(rank), combination_(combination), net_(make(rank, combination)), optimizer_(net_.parameters(), 0.05) {}

  void step(int number, int training, int divisor) {
    const auto expected = mean_of_gradients(number, training, divisor);
    if (combination_.clear == Clear::kByWrapper) net_.zero_grad();
    if (combination_.accumulate) {
      const auto scope = net_.no_sync();
      loss_of(&net_, micro_batch_of(rank_.rank, number, 1)).backward();
    }
    const auto loss = loss_of(&net_, micro_batch_of(rank_.rank, number, 0));
    if (combination_.clear != Clear::kByWrapper)
      optimizer_.zero_grad(/*set_to_none=*/combination_.clear == Clear::kToNoneAfterForward);
    loss.backward();
    const auto had = flat_gradients(*net_);
    EXPECT_LE((had - expected).norm().item<double>(), 1e-5 * expected.norm().item<double>())
        << combination_.text() << ", step " << number << ", rank " << rank_.rank;
    optimizer_.step();
  }

  DistributedDataParallel<PartlyUsedImpl>& net() { return net_; }

 private:
  static DistributedDataParallel<PartlyUsedImpl> make(Rank& rank, const Combination& combination) {
    PartlyUsed module;
    module->skip = combination.find_unused || combination.fixed_graph;
    fill_parameters(*module, 3);
    Options options;
    options.process_group(rank.group)
        .bucket_cap_mb(3e-4)
        .gradient_as_bucket_view(combination.views)
        .static_graph(combination.fixed_graph)
        .find_unused_parameters(combination.find_unused);
    if (combination.low_precision)
      options.mixed_precision(ddp::MixedPrecision().param_dtype(torch::kBFloat16).reduce_dtype(torch::kFloat));
    auto net = DistributedDataParallel(module, options);
    if (combination.hook) net.register_comm_hook(ddp::allreduce_hook(rank.group));
    return net;
  }

  torch::Tensor mean_of_gradients(int number, int training, int divisor) {
    const auto type = combination_.low_precision ? torch::kBFloat16 : torch::kFloat;
    PartlyUsed alone;
    alone->skip = net_->skip;
    {
      const torch::NoGradGuard no_grad;
      for (const auto& parameter : alone->named_parameters())
        parameter.value().copy_(net_.named_parameters()[parameter.key()]);
      alone->to(type);
    }
    auto sum = torch::zeros_like(flat_gradients(*alone));
    for (int rank = kRanks - training; rank < kRanks; ++rank) {
      alone->zero_grad();
      for (int micro = combination_.accumulate ? 1 : 0; micro >= 0; --micro)
        loss_of(alone, micro_batch_of(rank, number, micro).to(type)).backward();
      sum += flat_gradients(*alone);
    }
    return sum / divisor;
  }

  Rank& rank_;
  const Combination& combination_;
  DistributedDataParallel<PartlyUsedImpl> net_;
  torch::optim::SGD optimizer_;
};

TEST(Combinations, OfOptionsAllGiveTheMeanOfTheGradients) {
  const auto combinations = all_combinations();
  ASSERT_GT(combinations.size(), 50u);
  run_ranks(kRanks, [&](Rank& rank) {
    for (const auto& combination : combinations) {
      Trained trained(rank, combination);
      int number = 0;
      for (; number < 2; ++number) trained.step(number, kRanks, kRanks);
      if (combination.joined != Joined::kNever) {
        const bool by_all = combination.joined == Joined::kByAll;
        trained.net().join(
            [&] {
              for (int batch = 0; batch < 1 + 2 * rank.rank; ++batch) {
                const int training = batch < 1 ? kRanks : 1;
                trained.step(10 + batch, training, by_all || combination.hook ? kRanks : training);
              }
            },
            JoinOptions().divide_by_initial_world_size(by_all));
        trained.net().zero_grad();  // those of a rank that was out of data are old
      }
      for (; number < 5; ++number) trained.step(number, kRanks, kRanks);
      expect_equal_on_ranks(rank, flat(*trained.net()));
      if (::testing::Test::HasFailure()) return;
    }
  });
}

}  // namespace
}  // namespace lockstep::test
