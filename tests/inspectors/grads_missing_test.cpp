// Gradients that a rank, or every rank, does not have or has kept from the step before.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "tests/inspectors/gradients.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;
using namespace gradients;

TEST(Grads, AGradientThatOneRankLacksIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 3);
    if (rank == 1) net.spare->weight.mutable_grad() = torch::Tensor();
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::missing, RankSet{1}, "rank 1 has no gradient for spare.weight, which ranks 0,2 have");
    EXPECT_EQ(report.findings[0].reference_ranks, (RankSet{0, 2}));
  });
}

TEST(Grads, NobodyHasAGradientIsANote) {
  spawn_ranks(2, [](int rank, int) {
    SpareNet net;
    expect_one(grads(net, grads_options()), Verdict::missing, RankSet::all(2), "between backward and zero_grad",
               Severity::note);
    loss_of(net.forward(batch(rank), false)).backward();
    for (auto* layer : {&net.first, &net.second}) all_reduce_gradients(**layer, 2);
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::unused, RankSet::all(2), "no rank has a gradient for 2 of 6 parameters",
               Severity::note);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("spare.weight", "spare.bias"));
  });
}

TEST(Grads, TheSameBatchAgainIsToldAsStale) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    // Steps that change nothing, so that the same batch has the same gradient.
    torch::optim::Adam optimizer(net.parameters(), 0.0);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      loss_of(net.forward(batch(rank, rank == 1 ? 0 : step))).backward();
      all_reduce_gradients(net, 3);
      const Report report = grads(net, grads_options());
      if (step == 0) expect_fine(report);
      if (step > 0)
        expect_one(report, Verdict::stale, RankSet{1}, "the same gradients as in the step before", Severity::note);
      if (step == 3) EXPECT_THAT(report.findings[0].message, HasSubstr("for 3 steps"));
      optimizer.step();
    }
  });
}

TEST(Grads, ARankThatSkipsBackwardIsTold) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      if (rank != 2 || step == 0) loss_of(net.forward(batch(rank, step))).backward();
      all_reduce_gradients(net, 3);
      const Report report = grads(net, grads_options());
      if (step == 1) {
        ASSERT_FALSE(report.findings.empty());
        EXPECT_EQ(report.findings[0].verdict, Verdict::stale) << report;
        EXPECT_EQ(report.findings[0].ranks, RankSet{2});
      }
      optimizer.step();
    }
  });
}

}  // namespace
}  // namespace lockstep::inspect
