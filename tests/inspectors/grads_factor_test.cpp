// Gradients that were reduced, and are a multiple of what they should be: summed, averaged twice, scaled.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/gradients.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;
using namespace gradients;

TEST(Grads, ARankThatDividesOnceTooOftenIsNamedWithTheFactor) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, rank == 1 ? 9 : 3);
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet{1},
               "exactly 1/3 of the others': averaged twice?");
  });
  spawn_ranks(4, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, rank == 2 ? 1 : 4);
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet{2},
               "exactly 4 times the others': summed and not averaged?");
  });
}

TEST(Grads, AnotherScaleOnOneRankIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 3);
    if (rank == 0) torch::nn::utils::clip_grad_norm_(net.parameters(), 1e-3);
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet{0}, "times the others' in every element");
  });
}

TEST(Grads, SummedOnEveryRankIsSeenWithAnObserverOnly) {
  spawn_ranks(3, [](int rank, int) {
    for (const bool twice : {false, true}) {
      SpareNet net;
      std::optional<GradWatch> watching(watch_grads(net));
      loss_of(net.forward(batch(rank))).backward();
      all_reduce_gradients(net, twice ? 9 : 1);
      const Report report = grads(net, grads_options());
      if (twice) {
        expect_one(report, Verdict::mismatch, RankSet::all(3), "averaged twice");
        EXPECT_EQ(report.findings[0].kind, FindingKind::reduction);
        EXPECT_EQ(report.findings[0].tensors.size(), 6U);
      } else {  // right, where the loss is divided by the batch of all ranks
        expect_fine(report);
        EXPECT_THAT(report.findings[0].message, HasSubstr("; exactly 3 times the mean over ranks: their sum"));
      }
      watching.reset();
      expect_fine(grads(net, grads_options()));
    }
  });
}

TEST(Grads, SomeThatAreSummedWhileOthersAreTheMeanAreToldOf) {
  spawn_ranks(2, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 1);
    const auto parameters = net.parameters();
    for (size_t p = 2; p < parameters.size(); ++p) parameters[p].mutable_grad().div_(2);
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(2),
               "first.weight, first.bias: exactly 2 times the mean over ranks, summed and not averaged; the other 4 "
               "are the mean",
               Severity::note);
    EXPECT_EQ(report.findings[0].tensors.size(), 2U);
  });
}

TEST(Grads, AHookThatDoesNotDivideIsAFault) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    net.register_comm_hook([](ddp::GradBucket& bucket) {
      return dist::all_reduce(bucket.getBufferRef(), dist::ReduceOp::SUM, {}, true)
          .handle()
          ->getFuture()
          ->then([](c10::ivalue::Future& future) { return future.value().toTensorVector()[0]; },
                 c10::TensorType::get());
    });
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet::all(2), "summed and not averaged");
  });
}

}  // namespace
}  // namespace lockstep::inspect
