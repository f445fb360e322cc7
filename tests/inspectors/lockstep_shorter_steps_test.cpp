// lockstep where a rank does less than the others: it skips a part of the step, or throws in the middle.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <stdexcept>

#include "inspectors/lockstep/lockstep.h"
#include "tests/inspectors/lockstep_steps.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

// What the outcome hangs on is another thing on a rank that has less of it: that is not to be taken for where they
// part.
TEST(Lockstep, a_rank_that_skips_backward_is_named_where_the_others_call_it) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    net->forward(step_input(rank)).square().mean().backward();
    const Report report = lockstep_ranks(
        [&] {
          optimizer.zero_grad(/*set_to_none=*/false);
          if (rank == 0) EXPECT_GE(torch::ones({2}).sum().item<float>(), 0);  // on the side
          const auto loss = net->forward(step_input(rank)).square().mean();
          if (rank == 1) return;
          loss.backward();
          optimizer.step();
        },
        net, lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.verdict, Verdict::op_mismatch) << report;
    EXPECT_EQ(finding.ranks, RankSet{1});
    EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
    EXPECT_EQ(finding.op->name, "ones_like");  // the gradient that backward begins with
    EXPECT_THAT(finding.message, HasSubstr("rank 1 has finished"));
  });
}

TEST(Lockstep, a_rank_that_skips_the_update_is_named_there) {
  spawn_ranks(3, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const Report report = lockstep_ranks(
        [&] {
          const auto factor = torch::ones({3}) * 2;  // that the update alone hangs on
          net->forward(step_input()).square().mean().backward();
          if (rank == 2) return;
          const torch::NoGradGuard guard;
          net->second->bias.sub_(factor);
        },
        net, lockstep_options());
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.verdict, Verdict::op_mismatch) << report;
    EXPECT_EQ(finding.ranks, RankSet{2});
    EXPECT_EQ(finding.op->name, "sub_");
    EXPECT_THAT(finding.message, HasSubstr("rank 2 has finished"));
  });
}

Report report_of_a_step_cut_short(const std::function<void()>& step) {
  begin_lockstep();
  try {
    step();
  } catch (const std::runtime_error&) {  // as a session does: it has told of it
  }
  return end_lockstep({}, lockstep_options().cut_short(true));
}

TEST(Lockstep, what_a_rank_lacks_that_threw_is_no_finding) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto step = [&](bool before_backward) {
      optimizer.zero_grad();
      const auto loss = net->forward(step_input()).square().mean();
      if (before_backward && rank == 1) throw std::runtime_error("before backward");
      loss.backward();
      if (rank == 1) throw std::runtime_error("behind backward");
      optimizer.step();
    };
    const Report behind = report_of_a_step_cut_short([&] { step(false); });
    EXPECT_EQ(only_finding(behind).verdict, Verdict::ok) << behind;
    EXPECT_THAT(only_finding(behind).message, HasSubstr("as far as all of them came"));
    const Report before = report_of_a_step_cut_short([&] { step(true); });
    EXPECT_EQ(only_finding(before).verdict, Verdict::unsupported) << before;
    EXPECT_EQ(only_finding(before).severity, Severity::note);
  });
}

TEST(Lockstep, where_ranks_part_is_told_although_one_threw_later) {
  spawn_ranks(2, [](int rank, int) {
    auto net = std::make_shared<NormNet>();
    const Report report = report_of_a_step_cut_short([&] {
      const auto out = net->forward(step_input());
      (rank == 1 ? torch::gelu(out) : torch::relu(out)).square().mean().backward();
      if (rank == 1) throw std::runtime_error("later");
    });
    EXPECT_EQ(only_finding(report).verdict, Verdict::op_mismatch) << report;
    EXPECT_THAT(only_finding(report).message, HasSubstr("gelu"));
  });
}

}  // namespace
}  // namespace lockstep::inspect
