// lockstep: where ranks part, where a step does not repeat itself, and what may differ.
#include "inspectors/lockstep/lockstep.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <mutex>

#include "collectives/dist.h"
#include "ddp/ddp.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    second = register_module("second", torch::nn::Linear(8, 3));
    torch::NoGradGuard guard;
    double next = 0.5;
    for (auto& parameter : parameters())
      parameter.copy_(torch::arange(parameter.numel()).reshape(parameter.sizes()).mul(0.01).sub(next /= 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

torch::Tensor input(int rank = 0) { return torch::arange(16.0).reshape({4, 4}).mul(0.1).sin().add(rank); }

LockstepOptions patiently() { return LockstepOptions().deadline(std::chrono::minutes(5)); }

const Finding& only_finding(const Report& report) {
  EXPECT_EQ(report.findings.size(), 1U) << report;
  static const Finding none{.tensors = {FindingTensor{}}, .op = FindingOp{}};
  return report.findings.empty() ? none : report.findings[0];
}

/// A training step by hand: reduces its gradients where `reduce` says so.
void train(Net& net, torch::optim::Optimizer& optimizer, const torch::Tensor& x, bool reduce = true) {
  optimizer.zero_grad();
  net.forward(x).square().mean().backward();
  if (reduce) {
    for (auto& parameter : net.parameters()) {
      dist::all_reduce(parameter.grad());
      parameter.mutable_grad().div_(dist::get_world_size());
    }
  }
  optimizer.step();
}

TEST(Lockstep, equal_ranks_are_ok) {
  spawn_ranks(3, [](int, int) {
    auto net = std::make_shared<Net>();
    torch::optim::Adam optimizer(net->parameters(), 1e-2);
    const Report report = lockstep_ranks([&] { train(*net, optimizer, input()); }, net, patiently());
    EXPECT_EQ(only_finding(report).verdict, "ok") << report;
    EXPECT_THAT(only_finding(report).message, HasSubstr("equal bit by bit"));
    EXPECT_GT(report.tensors, 30);
  });
}

TEST(Lockstep, data_of_its_own_for_each_rank_is_ok) {
  spawn_ranks(2, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().broadcast_buffers(false));
    torch::optim::Adam optimizer(net.parameters(), 1e-2);
    const Report report = lockstep_ranks(
        [&] {
          for (int step = 0; step < 3; ++step) {
            optimizer.zero_grad();
            auto loss = net(input(rank + step)).square().mean();
            if (rank == 0) {  // on the side
              auto shown = loss.item<double>() + net.module()->parameters()[0].abs().max().item<double>();
              EXPECT_GT(shown, 0);
            }
            loss.backward();
            optimizer.step();
          }
        },
        net, patiently());
    EXPECT_EQ(only_finding(report).verdict, "ok") << report;
    EXPECT_THAT(only_finding(report).message, HasSubstr("parameters are equal, data differs, as it may, from add ("));
  });
}

TEST(Lockstep, a_missing_reduction_is_named_at_the_update) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 1e-2);
    const Report report = lockstep_ranks([&] { train(*net, optimizer, input(rank), false); }, net, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.severity, Severity::fault) << report;
    EXPECT_EQ(finding.verdict, "mismatch");
    EXPECT_EQ(finding.kind, "update");
    EXPECT_EQ(finding.op->name, "add_");
    EXPECT_EQ(finding.tensors.at(0).name, "first.weight");
    EXPECT_THAT(finding.message, HasSubstr("has not been reduced"));
  });
}

TEST(Lockstep, a_parameter_that_had_parted_is_named_with_its_rank) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<Net>();
    if (rank == 1) {
      torch::NoGradGuard guard;
      net->second->bias[0] += 0.5;
    }
    torch::optim::SGD optimizer(net->parameters(), 1e-2);
    const Report report = lockstep_ranks([&] { train(*net, optimizer, input(rank)); }, net, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.kind, "parameter") << report;
    EXPECT_EQ(finding.ranks, RankSet{1});
    EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
    EXPECT_EQ(finding.tensors.at(0).name, "second.bias");
    EXPECT_EQ(finding.op->name, "addmm");
    EXPECT_THAT(finding.message, HasSubstr("module second"));
  });
}

TEST(Lockstep, a_learning_rate_of_its_own_is_named) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), rank == 2 ? 0.5 : 0.25);
    const Report report = lockstep_ranks([&] { train(*net, optimizer, input(rank)); }, net, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.kind, "update") << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_THAT(finding.message, HasSubstr("value -0.25 on rank 0, -0.5 on rank 2"));
  });
}

TEST(Lockstep, a_branch_on_one_rank_is_named) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Report report = lockstep_ranks(
        [&] {
          optimizer.zero_grad();
          auto x = net->first(input());
          x = rank == 2 ? torch::gelu(x) : torch::relu(x);
          net->second(x).square().mean().backward();
        },
        net, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.verdict, "op_mismatch") << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_EQ(finding.op->name, "gelu");
    EXPECT_THAT(finding.message, HasSubstr("ranks 0-1 run relu"));
    EXPECT_THAT(finding.message, HasSubstr("rank 2 runs gelu"));
  });
}

/// An operator that is not what it was the time before: a computation that is broken on one rank.
torch::Tensor broken(const torch::Tensor& x, double by) {
  at::RecordFunction record(at::RecordScope::FUNCTION);
  if (record.isActive()) {
    const std::vector<c10::IValue> inputs = {x};
    record.before("broken", c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  }
  torch::Tensor result;
  {
    const at::RecordFunctionGuard inside(false);
    result = x + by;
  }
  if (record.isActive()) record.setOutputs(std::vector<c10::IValue>{result});
  return result;
}

// What the outcome hangs on is another thing on a rank that has less of it: that is not to be taken for where they
// part.
TEST(Lockstep, a_rank_that_skips_backward_is_named_where_the_others_call_it) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    net->forward(input(rank)).square().mean().backward();
    const Report report = lockstep_ranks(
        [&] {
          optimizer.zero_grad(/*set_to_none=*/false);
          if (rank == 0) EXPECT_GE(torch::ones({2}).sum().item<float>(), 0);  // on the side
          const auto loss = net->forward(input(rank)).square().mean();
          if (rank == 1) return;
          loss.backward();
          optimizer.step();
        },
        net, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.verdict, "op_mismatch") << report;
    EXPECT_EQ(finding.ranks, RankSet{1});
    EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
    EXPECT_EQ(finding.op->name, "ones_like");  // the gradient that backward begins with
    EXPECT_THAT(finding.message, HasSubstr("rank 1 is through"));
  });
}

TEST(Lockstep, a_rank_that_skips_the_update_is_named_there) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const Report report = lockstep_ranks(
        [&] {
          const auto factor = torch::ones({3}) * 2;  // that the update alone hangs on
          net->forward(input()).square().mean().backward();
          if (rank == 2) return;
          const torch::NoGradGuard guard;
          net->second->bias.sub_(factor);
        },
        net, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.verdict, "op_mismatch") << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_EQ(finding.op->name, "sub_");
    EXPECT_THAT(finding.message, HasSubstr("rank 2 is through"));
  });
}

Report report_of_a_step_cut_short(const std::function<void()>& step) {
  begin_lockstep();
  try {
    step();
  } catch (const std::runtime_error&) {  // as a session does: it has told of it
  }
  return end_lockstep({}, patiently().cut_short(true));
}

TEST(Lockstep, what_a_rank_lacks_that_threw_is_no_finding) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto step = [&](bool before_backward) {
      optimizer.zero_grad();
      const auto loss = net->forward(input()).square().mean();
      if (before_backward && rank == 1) throw std::runtime_error("before backward");
      loss.backward();
      if (rank == 1) throw std::runtime_error("behind backward");
      optimizer.step();
    };
    const Report behind = report_of_a_step_cut_short([&] { step(false); });
    EXPECT_EQ(only_finding(behind).verdict, "ok") << behind;
    EXPECT_THAT(only_finding(behind).message, HasSubstr("as far as all of them came"));
    const Report before = report_of_a_step_cut_short([&] { step(true); });
    EXPECT_EQ(only_finding(before).verdict, "unsupported") << before;
    EXPECT_EQ(only_finding(before).severity, Severity::note);
  });
}

TEST(Lockstep, where_ranks_part_is_told_although_one_threw_later) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<Net>();
    const Report report = report_of_a_step_cut_short([&] {
      const auto out = net->forward(input());
      (rank == 1 ? torch::gelu(out) : torch::relu(out)).square().mean().backward();
      if (rank == 1) throw std::runtime_error("later");
    });
    EXPECT_EQ(only_finding(report).verdict, "op_mismatch") << report;
    EXPECT_THAT(only_finding(report).message, HasSubstr("gelu"));
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
          const auto x = input() * 2;
          broken(x, rank == 1 ? 1e-3 : 0).sum();
        },
        patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.kind, "computation") << report;
    EXPECT_EQ(finding.ranks, RankSet{1});
    EXPECT_EQ(finding.op->name, "broken");
    EXPECT_THAT(finding.message, HasSubstr("from equal inputs"));
  });
}

TEST(Lockstep, a_step_that_repeats_itself_is_ok_and_leaves_no_trace) {
  auto net = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  const auto step = [&] {
    optimizer.zero_grad();
    torch::dropout(net->forward(input()), 0.5, true).square().mean().backward();
    optimizer.step();
  };
  step();
  std::vector<torch::Tensor> before;
  for (auto& each : net->parameters()) before.push_back(each.detach().clone());
  const Report report = lockstep(step, net, optimizer);
  EXPECT_EQ(only_finding(report).verdict, "ok") << report;
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(net->parameters()[i], before[i]));
}

TEST(Lockstep, an_operator_that_does_not_repeat_itself_is_named) {
  double by = 0;
  const Report report = lockstep([&] { broken(input() * 2, by += 0.001).sum(); });
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.severity, Severity::fault) << report;
  EXPECT_EQ(finding.op->name, "broken");
  EXPECT_THAT(finding.message, HasSubstr("does not repeat itself"));
}

/// A net whose gradients fill several buckets, which a wrapper lays out anew behind its first step.
struct Deep : torch::nn::Module {
  Deep() {
    for (int i = 0; i < 4; ++i) layers->push_back(torch::nn::Linear(4, 4));
    register_module("layers", layers);
    torch::NoGradGuard guard;
    for (auto& each : parameters()) each.copy_(torch::arange(each.numel()).reshape(each.sizes()).add(0.5).sin());
  }
  torch::Tensor forward(torch::Tensor x) {  // without random numbers: ranks that are threads share a generator
    for (auto& each : *layers) x = torch::tanh(each->as<torch::nn::Linear>()->forward(x));
    return x;
  }
  torch::nn::ModuleList layers;
};

/// Steps of a wrapped module as `%%lockstep --self` runs them, `ran` steps after it was wrapped.
void repeats_under_a_wrapper(const ddp::Options& options, int ran) {
  spawn_ranks(2, [&](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<Deep>(), options);
    torch::optim::Adam optimizer(net.parameters(), 1e-2);
    const auto step = [&](double broken_by = 0) {
      optimizer.zero_grad();
      auto x = input(rank);
      if (broken_by != 0) x = broken(x, broken_by);
      net(x).square().mean().backward();
      optimizer.step();
    };
    for (int i = 0; i < ran; ++i) step();
    std::vector<torch::Tensor> before;
    for (auto& each : net.parameters()) before.push_back(each.detach().clone());

    const Report fine = lockstep(step, net, optimizer, patiently());
    EXPECT_EQ(only_finding(fine).verdict, "ok")
        << "after " << ran << " steps, find_unused_parameters " << options.find_unused_parameters() << ", static_graph "
        << options.static_graph() << ": " << fine;
    EXPECT_EQ(net.steps(), ran);
    // One that does not repeat itself is named all the same, and what it makes of the other rank's gradients is not.
    double by = 0;
    const Report report = lockstep([&] { step(by += rank == 1 ? 0.001 : 0); }, net, optimizer, patiently());
    const Finding& finding = only_finding(report);
    if (rank == 1) EXPECT_GT(by, 0);
    EXPECT_EQ(finding.severity, Severity::fault) << report;
    EXPECT_EQ(finding.op->name, "broken");
    EXPECT_EQ(finding.ranks, RankSet{1});

    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(net.parameters()[i], before[i]));
    for (int i = 0; i < 3; ++i) step();  // and training goes on
    EXPECT_EQ(net.steps(), ran + 3);
  });
}

TEST(Lockstep, a_wrapped_module_repeats_itself_from_its_first_step_on) {
  for (const int ran : {0, 1, 2, 3}) repeats_under_a_wrapper(ddp::Options().bucket_cap_mb(0.0001), ran);
}

TEST(Lockstep, a_wrapped_module_repeats_itself_whatever_its_options) {
  for (const int ran : {0, 1, 2}) {
    repeats_under_a_wrapper(ddp::Options().find_unused_parameters(true), ran);
    repeats_under_a_wrapper(ddp::Options().static_graph(true), ran);
    repeats_under_a_wrapper(ddp::Options().gradient_as_bucket_view(true), ran);
  }
}

TEST(Lockstep, state_that_was_not_given_is_a_note) {
  auto hidden = torch::ones({3});
  const Report report = lockstep([&] { hidden.add_(1).mul(2).sum(); });
  const Finding& finding = only_finding(report);
  EXPECT_EQ(finding.severity, Severity::note) << report;
  EXPECT_THAT(finding.message, HasSubstr("not in the state that was given"));
  EXPECT_EQ(only_finding(lockstep([&] { hidden.add_(1).mul(2).sum(); }, hidden)).verdict, "ok");
}

TEST(Lockstep, ranks_that_a_note_reaches_through_a_reduction_have_none) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    double hidden = 0;
    const Report report =
        lockstep([&] { train(*net, optimizer, input() * (rank == 2 ? ++hidden : 1)); }, net, optimizer, patiently());
    const Finding& finding = only_finding(report);
    EXPECT_EQ(finding.severity, Severity::note) << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_THAT(finding.message, HasSubstr("not in the state that was given"));
  });
}

TEST(Lockstep, only_so_many_operators_are_kept) {
  const Report report = lockstep(
      [] {
        auto x = torch::ones({4});
        for (int i = 0; i < 100; ++i) x = x + 1;
      },
      LockstepOptions().max_operators(10));
  EXPECT_EQ(only_finding(report).verdict, "ok");
  EXPECT_THAT(only_finding(report).message, HasSubstr("91 operators beyond the first 10 were not compared"));
  EXPECT_LT(report.bytes, 20'000);
}

TEST(Lockstep, a_rank_that_does_not_come_is_named) {
  spawn_ranks(2, [](int rank, int) {
    if (rank == 1) return;
    const Report report =
        lockstep_ranks([] { torch::ones({2}); }, LockstepOptions().deadline(std::chrono::milliseconds(300)));
    EXPECT_EQ(only_finding(report).verdict, "missing");
  });
}

TEST(Lockstep, recording_leaves_training_bit_identical) {
  const auto run = [](bool recorded) {
    std::vector<torch::Tensor> result;
    spawn_ranks(2, [&](int rank, int) {
      auto net = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().gradient_as_bucket_view(true));
      torch::optim::Adam optimizer(net.parameters(), 1e-2);
      const auto steps = [&] {
        for (int step = 0; step < 5; ++step) {
          optimizer.zero_grad();
          net(input(rank + step)).square().mean().backward();
          optimizer.step();
        }
      };
      if (recorded)
        lockstep_ranks(steps, net, patiently());
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
