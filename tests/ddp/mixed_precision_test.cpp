// Option mixed_precision: forward and backward in a low precision, gradients and optimizer in the full one.
#include <sstream>

#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_module.h"
#include "ddp/hooks/comm_hooks.h"
#include "ddp/inspection.h"
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"

namespace lockstep::test {
namespace {

using ddp::DistributedDataParallel;
using ddp::MixedPrecision;
using ddp::Options;

TEST(MixedPrecision, ComputesLowAndKeepsFullPrecisionBetweenSteps) {
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    run_ranks(2, [&](Rank& rank) {
      struct Probe : MlpImpl {
        torch::Tensor forward(const torch::Tensor& x) {
          input_type = x.scalar_type();
          weight_type = fc2->weight.scalar_type();
          return MlpImpl::forward(x);
        }
        torch::ScalarType input_type = torch::kFloat, weight_type = torch::kFloat;
      };
      auto module = std::make_shared<Probe>();
      fill_parameters(*module, 8);
      Mlp exact;
      fill_parameters(*exact, 8);
      auto net = DistributedDataParallel(
          module, Options()
                      .process_group(rank.group)
                      .mixed_precision(ddp::MixedPrecision().param_dtype(type).reduce_dtype(torch::kFloat)));
      auto reference = DistributedDataParallel(exact, Options().process_group(rank.group));
      torch::optim::SGD optimizer(net->parameters(), 0.01), exact_optimizer(exact->parameters(), 0.01);
      for (int step = 0; step < 5; ++step) {
        net.zero_grad();
        reference.zero_grad();
        net(input_of(rank, step)).to(torch::kFloat).square().mean().backward();
        EXPECT_EQ(net->input_type, type);
        EXPECT_EQ(net->weight_type, type);
        EXPECT_EQ(net->fc2->weight.scalar_type(), torch::kFloat);
        EXPECT_EQ(net->fc2->weight.grad().scalar_type(), torch::kFloat);
        expect_equal_on_ranks(rank, flat_gradients(*net));
        reference(input_of(rank, step)).square().mean().backward();
        optimizer.step();
        exact_optimizer.step();
      }
      expect_equal_on_ranks(rank, flat(*net));
      EXPECT_LT(max_difference(flat(*net), flat(*exact)), 5e-3);
      EXPECT_GT(max_difference(flat(*net), flat(*exact)), 0);
      {
        const torch::NoGradGuard no_grad;  // evaluation leaves full precision behind, too
        net(input_of(rank));
      }
      EXPECT_EQ(net->fc2->weight.scalar_type(), torch::kFloat);
    });
  }
}

TEST(MixedPrecision, KeepsWhatIsSavedLoadedOrSynchronisedAfterAForwardAlone) {
  run_ranks(2, [](Rank& rank) {
    Mlp other, bare;
    fill_parameters(*other, 99);
    std::stringstream archive;
    torch::save(other, archive);
    auto net = DistributedDataParallel(
        Mlp(),
        Options().process_group(rank.group).mixed_precision(ddp::MixedPrecision().param_dtype(torch::kBFloat16)));
    const auto evaluate = [&] {
      const torch::NoGradGuard no_grad;
      net(input_of(rank));
      return flat(*net);
    };
    const auto before = flat(*net);
    net(input_of(rank));
    std::stringstream saved;
    torch::save(net, saved);
    torch::load(bare, saved);
    EXPECT_TRUE(flat(*bare).equal(before));

    net(input_of(rank));
    archive.seekg(0);
    torch::load(net, archive);
    EXPECT_TRUE(flat(*net).equal(flat(*other)));
    EXPECT_TRUE(evaluate().equal(flat(*other)));

    fill_parameters(*net, 50);
    net(input_of(rank));
    archive.seekg(0);
    torch::load(net.ptr(), archive);
    EXPECT_THROW(evaluate(), ddp::Error) << "loaded past the wrapper";

    net(input_of(rank));
    net.restore_full_precision();
    EXPECT_EQ(net->fc1->weight.scalar_type(), torch::kFloat);
    fill_parameters(*net, rank.rank);
    net(input_of(rank));
    net.sync_module_states(1);
    fill_parameters(*other, 1);
    EXPECT_TRUE(evaluate().equal(flat(*other)));

    net.zero_grad();
    net(input_of(rank)).sum().backward();
    expect_reduced(rank, *net);
  });
}

TEST(MixedPrecision, TrainsWithBucketViewsAsWithout) {
  std::vector<torch::Tensor> trained;
  for (const bool views : {false, true}) {
    for (const bool fixed : {false, true}) {
      run_ranks(2, [&](Rank& rank) {
        Mlp module;
        fill_parameters(*module, 8);
        auto net =
            DistributedDataParallel(module, Options()
                                                .process_group(rank.group)
                                                .gradient_as_bucket_view(views)
                                                .static_graph(fixed)
                                                .mixed_precision(ddp::MixedPrecision().param_dtype(torch::kBFloat16)));
        int reported = 0;
        const auto listener = ddp::Inspection(net).on_step([&] { ++reported; });
        torch::optim::SGD optimizer(net.parameters(), 0.01);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
          net(input_of(rank, step)).square().sum().backward();
          EXPECT_EQ(reported, step + 1);
          optimizer.step();
        }
        expect_equal_on_ranks(rank, flat(*net));
        if (rank.rank == 0) trained.push_back(flat(*net));
      });
    }
  }
  for (const auto& each : trained) EXPECT_TRUE(each.equal(trained[0]));
}

// The gradients of a copy of `module` in 16-bit floats, in full precision.
torch::Tensor low_gradients(const MlpImpl& module, const torch::Tensor& x) {
  Mlp copy;
  {
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : copy->named_parameters())
      parameter.value().copy_(module.named_parameters()[parameter.key()]);
    copy->to(torch::kBFloat16);
  }
  copy->forward(x.to(torch::kBFloat16)).to(torch::kFloat).square().mean().backward();
  return flat_gradients(*copy);
}

TEST(MixedPrecision, ReducesInFullPrecisionWithoutRoundingTheResult) {
  for (const bool fixed : {false, true}) {
    run_ranks(2, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 8);
      auto net = DistributedDataParallel(
          module, Options()
                      .process_group(rank.group)
                      .static_graph(fixed)
                      .mixed_precision(MixedPrecision().param_dtype(torch::kBFloat16).reduce_dtype(torch::kFloat)));
      for (int step = 0; step < 3; ++step) {
        torch::Tensor mean = torch::zeros_like(flat_gradients(*module));
        for (int other = 0; other < 2; ++other)
          mean += low_gradients(*module, random_tensor({4, 8}, 100 * step + other)) / 2;
        net.zero_grad();
        net(input_of(rank, step)).to(torch::kFloat).square().mean().backward();
        // The sum of two bfloat16 numbers is rounded once, to float.
        EXPECT_TRUE(flat_gradients(*module).equal(mean.to(torch::kFloat).to(torch::kDouble))) << "step " << step;
      }
    });
  }
}

TEST(MixedPrecision, GivesGradientsThatOnlyOtherRanksHaveInFullPrecision) {
  run_ranks(2, [](Rank& rank) {
    PartlyUsed module;
    fill_parameters(*module, 3);
    module->skip = rank.rank == 1;
    auto net = DistributedDataParallel(module, Options()
                                                   .process_group(rank.group)
                                                   .static_graph(true)
                                                   .mixed_precision(MixedPrecision().param_dtype(torch::kBFloat16)));
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      net(input_of(rank, step)).sum().backward();
      EXPECT_EQ(net->skipped->weight.grad().scalar_type(), torch::kFloat);
      expect_reduced(rank, *net);
      optimizer.step();
    }
    expect_equal_on_ranks(rank, flat(*net));
  });
}

TEST(MixedPrecision, InAJoinDividesByThoseThatTrainAndEndsInFullPrecision) {
  for (const bool by_all : {false, true}) {
    run_ranks(2, [&](Rank& rank) {
      Mlp module;
      fill_parameters(*module, 8);
      auto net = DistributedDataParallel(
          module, Options()
                      .process_group(rank.group)
                      .mixed_precision(MixedPrecision().param_dtype(torch::kBFloat16).reduce_dtype(torch::kFloat)));
      net.join(
          [&] {
            if (rank.rank == 0) return;
            net(input_of(rank)).to(torch::kFloat).square().mean().backward();
            EXPECT_TRUE(flat_gradients(*module).equal(low_gradients(*module, input_of(rank)) / (by_all ? 2 : 1)));
            const auto scope = net.no_sync();
            net(input_of(rank));  // no backward: parameters stay in low precision
          },
          ddp::JoinOptions().divide_by_initial_world_size(by_all));
      EXPECT_EQ(net->fc1->weight.scalar_type(), torch::kFloat);
      Mlp before;
      fill_parameters(*before, 8);
      EXPECT_TRUE(flat(*net).equal(flat(*before)));
    });
  }
}

TEST(MixedPrecision, CastsBuffersOfFloatsAndLeavesIntegers) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(
        ConvNet(), Options().process_group(rank.group).mixed_precision(MixedPrecision().buffer_dtype(torch::kDouble)));
    EXPECT_EQ(net->norm1->running_mean.scalar_type(), torch::kDouble);
    EXPECT_EQ(net->norm1->num_batches_tracked.scalar_type(), torch::kLong);
  });
}

const auto kLowInFullReduce = MixedPrecision().param_dtype(torch::kBFloat16).reduce_dtype(torch::kFloat);

torch::Tensor mean_of_low_gradients(const MlpImpl& module, std::initializer_list<int> steps) {
  auto mean = torch::zeros_like(flat_gradients(module));
  for (const int step : steps) {
    for (int rank = 0; rank < 2; ++rank) mean += low_gradients(module, random_tensor({4, 8}, 100 * step + rank)) / 2;
  }
  return mean;
}

void expect_close(const torch::Tensor& had, const torch::Tensor& expected) {
  EXPECT_LE((had - expected).norm().item<double>(), 4e-3 * expected.norm().item<double>());  // bfloat16 has 8 bits
}

TEST(MixedPrecision, ReducesWhateverForwardsComeBeforeABackward) {
  run_ranks(2, [](Rank& rank) {
    Mlp module;
    fill_parameters(*module, 8);
    auto net = DistributedDataParallel(
        module, Options().process_group(rank.group).bucket_cap_mb(3e-4).mixed_precision(kLowInFullReduce));
    const auto loss_of = [&](int step) { return net(input_of(rank, step)).to(torch::kFloat).square().mean(); };
    const auto evaluate = [&] {
      const torch::NoGradGuard no_grad;
      net(input_of(rank, 70));
    };
    for (int step = 0; step < 4; ++step) {
      net.zero_grad();
      (loss_of(step) + loss_of(step + 50)).backward();  // two forwards, one backward
      const auto gradients = flat_gradients(*net);
      expect_close(gradients, mean_of_low_gradients(*module, {step, step + 50}));
      evaluate();
      EXPECT_TRUE(flat_gradients(*net).equal(gradients)) << "an evaluation rounds no gradients";

      net.zero_grad();
      const auto loss = loss_of(step);
      evaluate();
      EXPECT_EQ(net->fc1->weight.scalar_type(), torch::kBFloat16) << "its backward is still to come";
      loss.backward();
      expect_close(flat_gradients(*net), mean_of_low_gradients(*module, {step}));
      evaluate();
      EXPECT_EQ(net->fc1->weight.scalar_type(), torch::kFloat);

      net.zero_grad();
      const auto saved = loss_of(step);
      net.restore_full_precision();  // as saving does
      EXPECT_EQ(message_of([&] { saved.backward(); }).empty(), true);
      EXPECT_EQ(net->fc1->weight.grad().scalar_type(), torch::kFloat);
      expect_close(flat_gradients(*net), mean_of_low_gradients(*module, {step}));
    }
  });
}

TEST(MixedPrecision, SaysThatABackwardWasNotAnnounced) {
  run_ranks(2, [](Rank& rank) {
    auto net = DistributedDataParallel(Mlp(), Options().process_group(rank.group).mixed_precision(kLowInFullReduce));
    const auto announced = [&](const torch::Tensor& loss) {
      return message_of([&] { loss.backward(); }).find("no forward of the wrapper announced it") == std::string::npos;
    };
    for (int step = 0; step < 3; ++step) {
      const auto first = net(input_of(rank)).sum(), second = net(input_of(rank)).sum();
      EXPECT_TRUE(announced(first));
      EXPECT_FALSE(announced(second)) << "two backwards after two forwards";
      EXPECT_FALSE(announced(net->forward(input_of(rank)).sum())) << "the module was called itself";
      net.reset();
      net.zero_grad();
      net(input_of(rank)).to(torch::kFloat).square().mean().backward();
      expect_reduced(rank, *net);
    }
  });
}

TEST(MixedPrecision, TakesParametersThatAreLowAlready) {
  run_ranks(2, [](Rank& rank) {
    Mlp module;
    fill_parameters(*module, 8);
    module->fc2->to(torch::kBFloat16);
    auto net = DistributedDataParallel(module, Options().process_group(rank.group).mixed_precision(kLowInFullReduce));
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      net(input_of(rank, step)).to(torch::kFloat).square().mean().backward();
      expect_reduced(rank, *net);
      expect_close(flat_gradients(*net), mean_of_low_gradients(*module, {step}));
      EXPECT_EQ(net->fc2->weight.scalar_type(), torch::kBFloat16);
      EXPECT_EQ(net->fc2->weight.grad().scalar_type(), torch::kBFloat16);
      EXPECT_EQ(net->fc1->weight.grad().scalar_type(), torch::kFloat);
    }
  });
}

}  // namespace
}  // namespace lockstep::test
