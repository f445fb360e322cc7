// Gradients that were not reduced, or were reduced within no_sync().
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/gradients.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;
using namespace gradients;

TEST(Grads, NotReducedAtAllIsNamedWithItsCause) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(3), "not reduced: every rank has the gradients");
    EXPECT_EQ(report.findings[0].kind, FindingKind::gradient);
    EXPECT_EQ(report.findings[0].tensors.size(), 6U);
    EXPECT_EQ(report.findings[0].tensors[0].norms.size(), 3U);
    expect_fine(grads(net, grads_options().local(true)));
  });
}

TEST(Grads, OneParameterThatALoopForgotIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    const torch::Tensor forgotten = net.second->bias.grad().clone();
    all_reduce_gradients(net, 3);
    net.second->bias.mutable_grad() = forgotten;
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet::all(3), "in 1 of 6 gradients");
    EXPECT_THAT(names(grads(net, grads_options()).findings[0]), ElementsAre("second.bias"));
  });
}

TEST(Grads, ForwardUnderNoSyncBeforeTheStepIsAFaultOnceTheOptimizerHasStepped) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    torch::Tensor loss;
    {
      const auto scope = net.no_sync();
      loss = loss_of(net(batch(rank)));
    }
    loss.backward();
    EXPECT_TRUE(grads(net, grads_options()).ok());
    optimizer.step();
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(2), "the last forward ran under no_sync()");
    EXPECT_THAT(report.findings[0].message, HasSubstr("an optimizer has stepped with them"));
  });
}

TEST(Grads, ReducedAlthoughBackwardRanWithinNoSyncIsNamed) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    const auto watching = watch_grads(net);
    const torch::Tensor loss = loss_of(net(batch(rank)));
    {
      const auto scope = net.no_sync();
      loss.backward();
    }
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(2), "ran under no_sync()");
    EXPECT_EQ(report.findings[0].kind, FindingKind::reduction);
  });
}

}  // namespace
}  // namespace lockstep::inspect
