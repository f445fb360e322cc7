// replay on several ranks: the one that made the bad value, and one that does not come.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "inspectors/nan/nan.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/nan_fixture.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using testing::spawn_ranks;

TEST_F(Nan, the_rank_that_made_it_is_named_and_not_those_it_reached) {
  spawn_ranks(3, [](int rank, int) {
    auto net = ddp::DistributedDataParallel(std::make_shared<ReluNet>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const Report report = replay(
        [&] {
          net.zero_grad();
          auto out = net(relu_input());
          if (rank == 2) out = out * torch::tensor({0.0, 1.0, 1.0}).log().abs();  // 0 * Inf in backward, Inf in forward
          out.square().mean().backward();
          optimizer.step();
        },
        net, optimizer, NanOptions().deadline(std::chrono::minutes(5)));
    const Finding finding = only_finding(report);
    EXPECT_EQ(finding.ranks, RankSet{2}) << report;
    EXPECT_EQ(finding.op->name, "log");
    EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1}));
  });
}

TEST_F(Nan, a_rank_that_does_not_come_is_named) {
  spawn_ranks(2, [](int rank, int) {
    if (rank == 1) return;
    const Report report =
        replay([] { return torch::ones({2}); }, NanOptions().deadline(std::chrono::milliseconds(300)));
    EXPECT_EQ(only_finding(report).verdict, Verdict::missing);
    EXPECT_EQ(only_finding(report).ranks, RankSet{1});
  });
}

}  // namespace
}  // namespace lockstep::inspect
