// lockstep of a step with itself: it runs twice, and what is not deterministic is named.
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

TEST(Lockstep, a_step_that_repeats_itself_is_ok_and_leaves_no_trace) {
  auto net = std::make_shared<NormNet>();
  torch::optim::Adam optimizer(net->parameters(), 1e-2);
  const auto step = [&] {
    optimizer.zero_grad();
    torch::dropout(net->forward(step_input()), 0.5, true).square().mean().backward();
    optimizer.step();
  };
  step();
  std::vector<torch::Tensor> before;
  for (auto& each : net->parameters()) before.push_back(each.detach().clone());
  const Report report = lockstep(step, net, optimizer);
  EXPECT_EQ(only_finding(report).verdict, Verdict::ok) << report;
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(net->parameters()[i], before[i]));
}

TEST(Lockstep, an_operator_that_does_not_repeat_itself_is_named) {
  double by = 0;
  const Report report = lockstep([&] { broken(step_input() * 2, by += 0.001).sum(); });
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.severity, Severity::fault) << report;
  EXPECT_EQ(finding.op->name, "broken");
  EXPECT_THAT(finding.message, HasSubstr("is not deterministic"));
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
      auto x = step_input(rank);
      if (broken_by != 0) x = broken(x, broken_by);
      net(x).square().mean().backward();
      optimizer.step();
    };
    for (int i = 0; i < ran; ++i) step();
    std::vector<torch::Tensor> before;
    for (auto& each : net.parameters()) before.push_back(each.detach().clone());

    const Report fine = lockstep(step, net, optimizer, lockstep_options());
    EXPECT_EQ(only_finding(fine).verdict, Verdict::ok)
        << "after " << ran << " steps, find_unused_parameters " << options.find_unused_parameters() << ", static_graph "
        << options.static_graph() << ": " << fine;
    EXPECT_EQ(net.steps(), ran);
    // One that is not deterministic is named all the same, and what it makes of the other rank's gradients is not.
    double by = 0;
    const Report report = lockstep([&] { step(by += rank == 1 ? 0.001 : 0); }, net, optimizer, lockstep_options());
    const Finding finding = only_finding(report);
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
  const Finding finding = only_finding(report);
  EXPECT_EQ(finding.severity, Severity::note) << report;
  EXPECT_THAT(finding.message, HasSubstr("not in the state that was given"));
  EXPECT_EQ(only_finding(lockstep([&] { hidden.add_(1).mul(2).sum(); }, hidden)).verdict, Verdict::ok);
}

TEST(Lockstep, ranks_that_a_note_reaches_through_a_reduction_have_none) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    double hidden = 0;
    const Report report = lockstep([&] { train_step(*net, optimizer, step_input() * (rank == 2 ? ++hidden : 1)); }, net,
                                   optimizer, lockstep_options());
    const Finding finding = only_finding(report);
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
  EXPECT_EQ(only_finding(report).verdict, Verdict::ok);
  EXPECT_THAT(only_finding(report).message, HasSubstr("91 operators beyond the first 10 were not compared"));
  EXPECT_LT(report.bytes, 20'000);
}

}  // namespace
}  // namespace lockstep::inspect
