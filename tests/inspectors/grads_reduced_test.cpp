// What grads says of gradients once they are reduced: how many times the mean each is, which ranks agree, and what was
// there before.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

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

// ---- the factor of each -------------------------------------------------------------------------------------------

TEST(GradsReduced, OneThatIsAnotherMultipleIsNamedWithItsFactor) {
  spawn_ranks(2, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 2);
    net.second->weight.mutable_grad().mul_(4);
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(2),
               "second.weight: 4 times the mean over ranks; the other 5 are the mean", Severity::note);
    EXPECT_EQ(report.findings[0].kind, FindingKind::reduction);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("second.weight"));
    // Two of them, by factors of their own.
    net.first->bias.mutable_grad().mul_(0.25);
    EXPECT_THAT(grads(net, grads_options()).findings[0].message,
                HasSubstr("first.bias: 0.25 times the mean over ranks; second.weight: 4 times the mean over ranks; the "
                          "other 4 are the mean"));
    // And one that became nothing.
    net.first->bias.mutable_grad().zero_();
    EXPECT_THAT(grads(net, grads_options()).findings[0].message, HasSubstr("first.bias: 0 times the mean over ranks"));
  });
}

TEST(GradsReduced, AWeightThatIsUsedAndReducedTwiceIsNamed) {
  spawn_ranks(2, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 1);
    dist::all_reduce(net.first->weight.grad());
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(2),
               "first.weight: 4 times the mean over ranks, reduced once more than the others; the other 5 are exactly "
               "2 times the mean over ranks (their sum)",
               Severity::note);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("first.weight"));
  });
}

TEST(GradsReduced, AWrongDivisorOnAllRanksIsNotOkUnlessItIsMeant) {
  spawn_ranks(2, [](int rank, int) {
    SpareNet net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 8);
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet::all(2),
               "all 6 gradients are 0.25 times the mean over ranks: divided by", Severity::note);
    EXPECT_EQ(report.findings[0].tensors.size(), 6U);
    expect_fine(grads(net, grads_options().factor(0.25)));
    EXPECT_THROW(grads(net, grads_options().factor(0.0)), dist::ArgumentError);
  });
}

TEST(GradsReduced, GradientsThatEachRankHasScaledBeforeTheReductionAreNotOk) {
  for (const bool clips : {true, false}) {
    spawn_ranks(3, [clips](int rank, int) {
      SpareNet net;
      const auto watching = watch_grads(net);
      loss_of(net.forward(batch(rank))).backward();
      if (clips)
        torch::nn::utils::clip_grad_norm_(net.parameters(), 0.01);
      else
        for (auto& parameter : net.parameters()) parameter.mutable_grad() *= rank + 1;
      all_reduce_gradients(net, 3);
      const Report report = grads(net, grads_options());
      expect_one(report, Verdict::mismatch, RankSet::all(3),
                 clips ? "clipped on each rank before the reduction? Clip after it"
                       : "with a factor of its own, 1 on rank 0, 2 on rank 1, 3 on rank 2: scaled on each rank",
                 Severity::note);
      EXPECT_EQ(report.findings[0].kind, FindingKind::reduction);
    });
  }
}

// ---- what was there before, and what is nothing -------------------------------------------------------------------

TEST(GradsReduced, AForgottenZeroGradOnOneRankIsNamed) {
  for (const bool wrapped : {true, false}) {
    spawn_ranks(3, [wrapped](int rank, int) {
      const auto module = std::make_shared<SpareNet>();
      std::optional<ddp::DistributedDataParallel<SpareNet>> wrapper;
      if (wrapped) wrapper.emplace(module);
      const auto watching = watch_grads(*module);
      torch::optim::SGD optimizer(module->parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        if (rank != 1 || step != 1) optimizer.zero_grad(/*set_to_none=*/step != 2);
        loss_of(wrapped ? (*wrapper)(batch(rank, step)) : module->forward(batch(rank, step))).backward();
        if (!wrapped && step == 1)
          expect_one(grads(*module, grads_options().local(true)), Verdict::mismatch, RankSet{1}, "had already used");
        if (!wrapped) all_reduce_gradients(*module, 3);
        const Report report = grads(*module, grads_options());
        if (step == 1)
          expect_one(report, Verdict::mismatch, RankSet{1},
                     "backward on rank 1 added to gradients that an optimizer had already used (all 6 gradients): no "
                     "zero_grad() since that step, unlike on ranks 0,2");
        else
          expect_fine(report);
        optimizer.step();
      }
    });
  }
}

TEST(GradsReduced, AForgottenZeroGradOnAllRanksIsANote) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      loss_of(net(batch(rank, step))).backward();
      const Report report = grads(net, grads_options());
      if (step == 0) expect_fine(report);
      if (step == 1)
        expect_one(report, Verdict::stale, RankSet::all(2), "no zero_grad() since that step", Severity::note);
      optimizer.step();
    }
  });
}

TEST(GradsReduced, ALayerWhoseGradientIsZeroOnEveryRankIsToldOf) {
  for (const bool watched : {true, false}) {
    spawn_ranks(2, [watched](int rank, int) {
      ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
      std::optional<GradWatch> watching;
      if (watched) watching.emplace(watch_grads(net));
      const torch::Tensor cut = (net->spare->weight.sum() + net->spare->bias.sum()) * 0;
      (loss_of(net(batch(rank), false)) + cut).backward();
      const Report report = grads(net, grads_options());
      expect_one(report, Verdict::unused, RankSet::all(2),
                 "the gradients of spare.weight, spare.bias are exactly zero on ranks 0-1", Severity::note);
      EXPECT_THAT(names(report.findings[0]), ElementsAre("spare.weight", "spare.bias"));
      if (watched)
        expect_one(grads(net, grads_options().local(true)), Verdict::unused, RankSet::all(2), "exactly zero",
                   Severity::note);
      for (auto& parameter : net.parameters()) parameter.mutable_grad().zero_();
      expect_one(grads(net, grads_options()), watched ? Verdict::missing : Verdict::unused, RankSet::all(2),
                 watched ? "cleared since backward" : "every gradient is exactly zero on ranks 0-1", Severity::note);
    });
  }
}

TEST(GradsReduced, EveryOkSaysWhatItHasNotChecked) {
  spawn_ranks(2, [](int rank, int) {
    const auto module = std::make_shared<SpareNet>();
    module->spare->bias.requires_grad_(false);
    ddp::DistributedDataParallel net(module);
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    const Report report = grads(net, grads_options());
    expect_fine(report);
    EXPECT_THAT(report.findings[0].message,
                HasSubstr("the mean over ranks; not checked: what the losses are divided by, 1 frozen parameter"));
    const Report local = grads(net, grads_options().local(true));
    expect_fine(local);
    EXPECT_THAT(local.findings[0].message, HasSubstr("not checked: the result of the reduction"));
  });
}

// ---- ranks in classes, and multiples of one another ---------------------------------------------------------------

TEST(GradsReduced, RanksThatAgreeAreShownAsClasses) {
  for (const bool watched : {true, false}) {
    spawn_ranks(4, [watched](int rank, int) {
      SpareNet net;
      std::optional<GradWatch> watching;
      if (watched) watching.emplace(watch_grads(net));
      const dist::Group low = dist::new_group({0, 1}), high = dist::new_group({2, 3});
      loss_of(net.forward(batch(rank))).backward();
      for (auto& parameter : net.parameters())
        dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG, rank < 2 ? low : high);
      const Report report = grads(net, grads_options());
      expect_one(report, Verdict::mismatch, RankSet::all(4),
                 "ranks 0-1 agree, ranks 2-3 agree, and they differ in all 6 gradients");
      EXPECT_THAT(report.findings[0].message,
                  HasSubstr(watched ? "reduced over a sub-group: each class has the gradients of its own ranks only"
                                    : "reduced over a sub-group?"));
    });
  }
}

TEST(GradsReduced, MultiplesOfAnotherRanksGradientsHaveTheirFactorsForAnyNumberOfRanks) {
  spawn_ranks(4, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 4.0 / (rank + 1));
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet::all(4),
               "2 times rank 0's on rank 1, 3 times that on rank 2, exactly 4 times that on rank 3 in every element");
  });
  spawn_ranks(5, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, rank == 1 ? 15 : rank == 4 ? -2.5 : 5);
    const Report report = grads(net, grads_options());
    expect_one(report, Verdict::mismatch, RankSet{1, 4}, "0.3333 times the others' on rank 1, -2 times that on rank 4");
  });
  // One of them is no multiple: the finding gives the others' factors nevertheless.
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, rank == 1 ? 6 : 3);
    if (rank == 2)
      for (auto& parameter : net.parameters()) parameter.mutable_grad().add_(1);
    expect_one(grads(net, grads_options()), Verdict::mismatch, RankSet::all(3),
               "0.5 times rank 0's on rank 1 in every element");
  });
}

TEST(Grads, SparseGradientsAreComparedByValueAndPlace) {
  spawn_ranks(2, [](int rank, int) {
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(20, 4).sparse(true));
    const auto pass = [&](std::vector<int64_t> rows, double scale) {
      embedding->zero_grad();
      (embedding(torch::tensor(rows)) * scale).sum().backward();
    };
    pass({1, 3, 3}, 1);
    expect_fine(grads(embedding, grads_options()));
    pass({1, 3, 3}, 1 + rank);
    expect_one(grads(embedding, grads_options()), Verdict::mismatch, RankSet::all(2), "exactly 2 times rank 0's");
    pass({1, rank ? 4 : 3, 5}, 1);
    expect_one(grads(embedding, grads_options()), Verdict::mismatch, RankSet::all(2), "differ");
    EXPECT_TRUE(grads(embedding, grads_options().local(true)).ok());
  });
}

}  // namespace
}  // namespace lockstep::inspect
