// lockstep_ranks: where ranks part in a step, and what may differ.
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "inspectors/lockstep/lockstep.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/lockstep_steps.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Lockstep, equal_ranks_are_ok) {
  spawn_ranks(3, [](int, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::Adam optimizer(net->parameters(), 1e-2);
    const Report report = lockstep_ranks([&] { train_step(*net, optimizer, step_input()); }, net, lockstep_options());
    EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
    EXPECT_THAT(only_finding(report).message, HasSubstr("equal bit by bit"));
    EXPECT_GT(report.tensors, 30);
  });
}

TEST(Lockstep, autocast_of_one_rank_is_named) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), 1e-2);
    const Report report = lockstep_ranks(
        [&] {
          at::autocast::set_autocast_enabled(at::kCPU, rank == 1);
          const torch::Tensor loss = net->forward(step_input()).square().mean();
          at::autocast::set_autocast_enabled(at::kCPU, false);
          at::autocast::clear_cache();
          loss.backward();
          optimizer.step();
        },
        net, lockstep_options());
    EXPECT_THAT(only_finding(report).message,
                HasSubstr("without autocast on rank 0, with autocast bfloat16 on rank 1"));
  });
}

TEST(Lockstep, data_of_its_own_for_each_rank_is_ok) {
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<NormNet>(), ddp::Options().broadcast_buffers(false));
    torch::optim::Adam optimizer(net.parameters(), 1e-2);
    const Report report = lockstep_ranks(
        [&] {
          for (int step = 0; step < 3; ++step) {
            optimizer.zero_grad();
            auto loss = net(step_input(rank + step)).square().mean();
            if (rank == 0) {  // on the side
              auto shown = loss.item<double>() + net.module()->parameters()[0].abs().max().item<double>();
              EXPECT_GT(shown, 0);
            }
            loss.backward();
            optimizer.step();
          }
        },
        net, lockstep_options());
    EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
    EXPECT_THAT(only_finding(report).message, HasSubstr("parameters are equal, data differs (as it may) from add ("));
  });
}

TEST(Lockstep, a_missing_reduction_is_named_at_the_update) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), 1e-2);
    const Report report =
        lockstep_ranks([&] { train_step(*net, optimizer, step_input(rank), false); }, net, lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.severity, Severity::fault) << report;
    EXPECT_EQ(finding.verdict, Verdict::mismatch);
    EXPECT_EQ(finding.kind, FindingKind::update);
    EXPECT_EQ(finding.op->name, "add_");
    EXPECT_EQ(finding.tensors.at(0).name, "first.weight");
    EXPECT_THAT(finding.message, HasSubstr("not reduced, or not on every rank"));
  });
}

TEST(Lockstep, a_parameter_that_had_diverged_is_named_with_its_rank) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    if (rank == 1) {
      torch::NoGradGuard guard;
      net->second->bias[0] += 0.5;
    }
    torch::optim::SGD optimizer(net->parameters(), 1e-2);
    const Report report =
        lockstep_ranks([&] { train_step(*net, optimizer, step_input(rank)); }, net, lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.kind, FindingKind::parameter) << report;
    EXPECT_EQ(finding.ranks, RankSet{1});
    EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
    EXPECT_EQ(finding.tensors.at(0).name, "second.bias");
    EXPECT_EQ(finding.op->name, "addmm");
    EXPECT_THAT(finding.message, HasSubstr("module second"));
  });
}

TEST(Lockstep, a_learning_rate_of_its_own_is_named) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), rank == 2 ? 0.5 : 0.25);
    const Report report =
        lockstep_ranks([&] { train_step(*net, optimizer, step_input(rank)); }, net, lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.kind, FindingKind::update) << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_THAT(finding.message, HasSubstr("value -0.25 on rank 0, -0.5 on rank 2"));
  });
}

TEST(Lockstep, a_branch_on_one_rank_is_named) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Report report = lockstep_ranks(
        [&] {
          optimizer.zero_grad();
          auto x = net->first(step_input());
          x = rank == 2 ? torch::gelu(x) : torch::relu(x);
          net->second(x).square().mean().backward();
        },
        net, lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.verdict, Verdict::op_mismatch) << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_EQ(finding.op->name, "gelu");
    EXPECT_THAT(finding.message, HasSubstr("ranks 0-1 run relu"));
    EXPECT_THAT(finding.message, HasSubstr("rank 2 runs gelu"));
  });
}

TEST(Lockstep, a_recording_that_is_dropped_says_nothing) {
  begin_lockstep();
  torch::ones({3}).add_(1);
  drop_lockstep();
  EXPECT_TRUE(end_lockstep({}).findings.empty());
}

TEST(Lockstep, equal_inputs_with_other_outputs_are_a_fault_of_computation) {
  spawn_ranks(3, [](int rank, int) {
    const Report report = lockstep_ranks(
        [&] {
          const auto x = step_input() * 2;
          broken(x, rank == 1 ? 1e-3 : 0).sum();
        },
        lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.kind, FindingKind::computation) << report;
    EXPECT_EQ(finding.ranks, RankSet{1});
    EXPECT_EQ(finding.op->name, "broken");
    EXPECT_THAT(finding.message, HasSubstr("although its inputs are equal"));
  });
}

TEST(Lockstep, a_rank_that_does_not_come_is_named) {
  spawn_ranks(2, [](int rank, int) {
    if (rank == 1) return;
    const Report report =
        lockstep_ranks([] { torch::ones({2}); }, LockstepOptions().deadline(std::chrono::milliseconds(300)));
    EXPECT_EQ(only_finding(report).verdict, Verdict::missing);
  });
}

TEST(Lockstep, recording_leaves_training_bit_identical) {
  const auto run = [](bool recorded) {
    std::vector<torch::Tensor> result;
    spawn_ranks(2, [&](int rank, int) {
      auto net =
          ddp::DistributedDataParallel(std::make_shared<NormNet>(), ddp::Options().gradient_as_bucket_view(true));
      torch::optim::Adam optimizer(net.parameters(), 1e-2);
      const auto steps = [&] {
        for (int step = 0; step < 5; ++step) {
          optimizer.zero_grad();
          net(step_input(rank + step)).square().mean().backward();
          optimizer.step();
        }
      };
      if (recorded)
        lockstep_ranks(steps, net, lockstep_options());
      else
        steps();
      if (rank == 0)
        for (auto& each : net.parameters()) result.push_back(each.detach().clone());
    });
    return result;
  };
  const auto recorded = run(true), plain = run(false);
  ASSERT_EQ(recorded.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(recorded[i], plain[i]));
}

}  // namespace
}  // namespace lockstep::inspect
