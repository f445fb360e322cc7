// What is wrong with a rank's own gradients, before the reduction.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/gradients.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using testing::spawn_ranks;
using namespace gradients;

TEST(GradsLocal, AnOutlierAndAnotherLossScaleAreNotes) {
  for (const int ranks : {2, 3, 5}) {
    spawn_ranks(ranks, [ranks](int rank, int) {
      SpareNet net;
      (loss_of(net.forward(batch(rank))) * (rank == 1 ? 1024.0 : 1.0)).backward();
      const Report report = grads(net, grads_options().local(true));
      expect_one(report, Verdict::outlier, ranks == 2 ? RankSet::all(2) : RankSet{1}, "another loss scale",
                 Severity::note);
      expect_fine(grads(net, grads_options().local(true).threshold(1e6)));
    });
  }
}

TEST(GradsLocal, OneParameterOfOneRankIsAnOutlier) {
  spawn_ranks(4, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    if (rank == 3) net.second->weight.mutable_grad() *= 1e-3;
    const Report report = grads(net, grads_options().local(true));
    expect_one(report, Verdict::outlier, RankSet{3}, "1 of 6 gradients", Severity::note);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("second.weight"));
  });
}

TEST(GradsLocal, TheParameterThatMakesARankAnOutlierIsNamed) {
  for (const int ranks : {2, 3, 5}) {
    spawn_ranks(ranks, [ranks](int rank, int) {
      SpareNet net;
      loss_of(net.forward(batch(rank))).backward();
      if (rank == 1) net.spare->weight.mutable_grad() *= 1e6;
      const Report report = grads(net, grads_options().local(true));
      expect_one(report, Verdict::outlier, ranks == 2 ? RankSet::all(2) : RankSet{1}, "because of spare.weight (norm",
                 Severity::note);
      EXPECT_THAT(names(report.findings[0]), ElementsAre("spare.weight"));
      EXPECT_EQ(report.findings[0].tensors[0].norms.size(), static_cast<size_t>(ranks));
    });
  }
}

TEST(GradsLocal, ZeroOnOneRankAndInfOnAnother) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    if (rank == 0)
      for (auto& parameter : net.parameters()) parameter.mutable_grad().zero_();
    expect_one(grads(net, grads_options().local(true)), Verdict::outlier, RankSet{0},
               "every gradient of rank 0 is zero", Severity::note);
    if (rank == 0) loss_of(net.forward(batch(rank))).backward();
    if (rank == 1) net.first->bias.mutable_grad()[0] = INFINITY;
    const Report report = grads(net, grads_options().local(true));
    expect_one(report, Verdict::inf, RankSet{1}, "after backward on rank 1");
    EXPECT_EQ(report.findings[0].tensors[0].count, 1);
  });
}

TEST(GradsLocal, MissingBeforeTheReductionIsAFaultWhereItCantBeMended) {
  spawn_ranks(2, [](int rank, int) {
    ddp::SimpleDistributedDataParallel simple(std::make_shared<SpareNet>());
    loss_of(simple(batch(rank), rank == 0)).backward();
    expect_one(grads(simple, grads_options().local(true)), Verdict::missing, RankSet{1}, "sync_gradients()");
    SpareNet bare;
    loss_of(bare.forward(batch(rank), rank == 0)).backward();
    expect_one(grads(bare, grads_options().local(true)), Verdict::missing, RankSet{1},
               "rank 1 has no gradient for 2 of 6 parameters", Severity::note);
  });
}

TEST(GradsLocal, EqualBeforeAnyReductionIsTheSameBatch) {
  spawn_ranks(2, [](int, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(0))).backward();
    expect_one(grads(net, grads_options().local(true)), Verdict::duplicate_data, RankSet::all(2), "the same batch",
               Severity::note);
    all_reduce_gradients(net, 2);
    expect_one(grads(net, grads_options()), Verdict::duplicate_data, RankSet::all(2), "the same batch", Severity::note);
  });
}

TEST(GradsLocal, RanksWithTheSameBatchAreNamedBesideOthers) {
  spawn_ranks(4, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank == 2 ? 1 : rank))).backward();
    expect_one(grads(net, grads_options().local(true)), Verdict::duplicate_data, RankSet{1, 2},
               "equal bit by bit on ranks 1-2", Severity::note);
    all_reduce_gradients(net, 4);
    expect_one(grads(net, grads_options()), Verdict::duplicate_data, RankSet{1, 2}, "the same batch", Severity::note);
  });
}

}  // namespace
}  // namespace lockstep::inspect
