// grads on ranks that are threads: what is wrong with gradients is named, and healthy training is left in peace.
#include "inspectors/grads/grads.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <optional>

#include "ddp/ddp.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/grads/watch.h"
#include "tests/inspectors/gradients.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::spawn_ranks;
using namespace gradients;

// ---- what is right ------------------------------------------------------------------------------------------------

TEST(Grads, ReducedGradientsOfAWrapperAreTheMeanAndFine) {
  for (const bool view : {false, true}) {
    spawn_ranks(3, [view](int rank, int) {
      ddp::DistributedDataParallel net(std::make_shared<Net>(), ddp::Options().gradient_as_bucket_view(view));
      const auto watching = watch_grads(net);
      torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        loss_of(net(batch(rank, step))).backward();
        const Report report = grads(net, quickly());
        expect_fine(report);
        EXPECT_THAT(report.findings[0].message, HasSubstr("the mean of the ranks' own")) << view;
        EXPECT_EQ(report.tensors, 6);
        EXPECT_EQ(report.findings[0].step, step + 1);
        expect_fine(grads(net, quickly().local(true)));
        optimizer.step();
      }
      EXPECT_GE(watching.cost().gradients, 18);
    });
  }
}

TEST(Grads, WithoutAnObserverItSaysWhatItCantTell) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    loss_of(net(batch(rank))).backward();
    const Report report = grads(net, quickly());
    expect_fine(report);
    EXPECT_THAT(report.findings[0].message, HasSubstr("inspect::watch_grads"));
    const Report local = grads(net, quickly().local(true));
    expect_fine(local);
    EXPECT_THAT(local.findings[0].message, HasSubstr("reduced already"));
  });
}

TEST(Grads, ClippedGradientsAreFine) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    torch::nn::utils::clip_grad_norm_(net.parameters(), 0.013);
    const Report report = grads(net, quickly());
    expect_fine(report);
    EXPECT_THAT(report.findings[0].message, HasSubstr("clipped to a norm of 0.013"));
    for (auto& parameter : net.parameters()) parameter.mutable_grad().clamp_(-1e-4, 1e-4);
    const Report by_value = grads(net, quickly());
    expect_fine(by_value);
    EXPECT_THAT(by_value.findings[0].message,
                HasSubstr("and 3 more against the mean of the ranks' own, of which they are "
                          "no multiple"));
  });
}

TEST(Grads, FrozenLayersAreNotLookedAt) {
  spawn_ranks(2, [](int rank, int) {
    const auto module = std::make_shared<Net>();
    module->first->weight.mutable_grad() = torch::full({10, 6}, rank);  // from before it was frozen
    for (auto& parameter : module->first->parameters()) parameter.requires_grad_(false);
    ddp::DistributedDataParallel net(module);
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    const Report report = grads(net, quickly());
    expect_fine(report);
    EXPECT_EQ(report.tensors, 4);
  });
}

TEST(Grads, UnusedParametersWithFindUnusedParametersAreFine) {
  spawn_ranks(3, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>(), ddp::Options().find_unused_parameters(true));
    const auto watching = watch_grads(net);
    for (const bool spare_on_rank0 : {true, false}) {
      net.zero_grad();
      loss_of(net(batch(rank), rank == 0 && spare_on_rank0)).backward();
      expect_fine(grads(net, quickly()));
      expect_fine(grads(net, quickly().local(true)));
    }
  });
}

TEST(Grads, AccumulationUnderNoSyncIsFineAtEachOfItsSteps) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        std::optional<ddp::NoSync> scope;
        if (micro_batch < 2) scope.emplace(net);
        loss_of(net(batch(rank, 3 * step + micro_batch))).backward();
        expect_fine(grads(net, quickly().local(true)));
        const Report report = grads(net, quickly());
        EXPECT_TRUE(report.ok()) << report;  // a note, at most, as long as they are not reduced
        if (micro_batch == 2) {
          expect_fine(report);
          EXPECT_THAT(report.findings[0].message, HasSubstr("the mean of the ranks' own"));
        } else {
          EXPECT_THAT(report.findings[0].message, HasSubstr("no_sync"));
        }
      }
      optimizer.step();
    }
  });
}

TEST(Grads, AnUnevenLastBatchUnderJoinIsFine) {
  for (const bool initial : {true, false}) {
    spawn_ranks(3, [initial](int rank, int) {
      ddp::DistributedDataParallel net(std::make_shared<Net>());
      const auto watching = watch_grads(net);
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      net.join(
          [&] {
            for (int step = 0; step < (rank == 1 ? 2 : 4); ++step) {
              optimizer.zero_grad();
              loss_of(net(batch(rank, step))).backward();
              optimizer.step();
            }
          },
          ddp::JoinOptions().divide_by_initial_world_size(initial));
      const Report report = grads(net, quickly());
      EXPECT_TRUE(report.ok()) << report;
      const Finding& note = report.findings.back();
      EXPECT_EQ(note.verdict, "uneven_data");
      EXPECT_EQ(note.ranks, RankSet{1});
      if (rank != 1) EXPECT_EQ(report.findings[0].verdict, "ok") << report;
    });
  }
}

struct Tied : torch::nn::Module {
  Tied() {
    first = register_parameter("first", torch::arange(36.0).reshape({6, 6}).sin());
    last = register_parameter("last", first);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(first).tanh().matmul(last.t()); }
  torch::Tensor first, last;
};

TEST(Grads, ModulesWithSharedWeightsAreFine) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Tied>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(net(batch(rank, step))).backward();
      const Report report = grads(net, quickly());
      expect_fine(report);
      EXPECT_EQ(report.tensors, 1);
      optimizer.step();
    }
  });
}

TEST(Grads, DropoutWithSeedsOfRanksIsFine) {
  spawn_ranks(3, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    const auto watching = watch_grads(net);
    loss_of(torch::dropout(net(batch(rank)), 0.5, true)).backward();
    expect_fine(grads(net, quickly()));
    EXPECT_TRUE(grads(net, quickly().local(true)).ok());
  });
}

// ---- what is wrong after the reduction ----------------------------------------------------------------------------

TEST(Grads, NotReducedAtAllIsNamedWithItsCause) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    const Report report = grads(net, quickly());
    expect_one(report, "mismatch", RankSet::all(3), "not reduced: on every rank");
    EXPECT_EQ(report.findings[0].kind, "gradient");
    EXPECT_EQ(report.findings[0].tensors.size(), 6U);
    EXPECT_EQ(report.findings[0].tensors[0].norms.size(), 3U);
    expect_fine(grads(net, quickly().local(true)));
  });
}

TEST(Grads, OneParameterThatALoopForgotIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    const torch::Tensor forgotten = net.second->bias.grad().clone();
    all_reduce_gradients(net, 3);
    net.second->bias.mutable_grad() = forgotten;
    expect_one(grads(net, quickly()), "mismatch", RankSet::all(3), "in 1 of 6 gradients");
    EXPECT_THAT(names(grads(net, quickly()).findings[0]), ElementsAre("second.bias"));
  });
}

TEST(Grads, ARankThatDividesOnceTooOftenIsNamedWithTheFactor) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, rank == 1 ? 9 : 3);
    expect_one(grads(net, quickly()), "mismatch", RankSet{1}, "exactly 1/3 of the others': averaged twice?");
  });
  spawn_ranks(4, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, rank == 2 ? 1 : 4);
    expect_one(grads(net, quickly()), "mismatch", RankSet{2}, "exactly 4 times the others': summed and not averaged?");
  });
}

TEST(Grads, AnotherScaleOnOneRankIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 3);
    if (rank == 0) torch::nn::utils::clip_grad_norm_(net.parameters(), 1e-3);
    expect_one(grads(net, quickly()), "mismatch", RankSet{0}, "times the others' in every element");
  });
}

TEST(Grads, SummedOnEveryRankIsSeenWithAnObserverOnly) {
  spawn_ranks(3, [](int rank, int) {
    for (const bool twice : {false, true}) {
      Net net;
      std::optional<GradWatch> watching(watch_grads(net));
      loss_of(net.forward(batch(rank))).backward();
      all_reduce_gradients(net, twice ? 9 : 1);
      const Report report = grads(net, quickly());
      if (twice) {
        expect_one(report, "mismatch", RankSet::all(3), "averaged twice");
        EXPECT_EQ(report.findings[0].kind, "reduction");
        EXPECT_EQ(report.findings[0].tensors.size(), 6U);
      } else {  // right, where the loss is divided by the batch of all ranks
        expect_fine(report);
        EXPECT_THAT(report.findings[0].message, HasSubstr("; exactly 3 times the mean of the ranks' own: their sum"));
      }
      watching.reset();
      expect_fine(grads(net, quickly()));
    }
  });
}

TEST(Grads, SomeThatAreSummedWhileOthersAreTheMeanAreToldOf) {
  spawn_ranks(2, [](int rank, int) {
    Net net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 1);
    const auto parameters = net.parameters();
    for (size_t p = 2; p < parameters.size(); ++p) parameters[p].mutable_grad().div_(2);
    const Report report = grads(net, quickly());
    expect_one(
        report, "mismatch", RankSet::all(2),
        "first.weight, first.bias: exactly 2 times the mean of the ranks' own, summed and not averaged; the other 4 "
        "are the mean",
        Severity::note);
    EXPECT_EQ(report.findings[0].tensors.size(), 2U);
  });
}

TEST(Grads, AHookThatDoesNotDivideIsAFault) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    net.register_comm_hook([](ddp::GradBucket& bucket) {
      return dist::all_reduce(bucket.getBufferRef(), dist::ReduceOp::SUM, {}, true)
          .handle()
          ->getFuture()
          ->then([](c10::ivalue::Future& future) { return future.value().toTensorVector()[0]; },
                 c10::TensorType::get());
    });
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    expect_one(grads(net, quickly()), "mismatch", RankSet::all(2), "summed and not averaged");
  });
}

TEST(Grads, NotANumberIsTracedToTheRankThatBroughtItIn) {
  spawn_ranks(3, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    std::optional<GradWatch> watching(watch_grads(net));
    const auto pass = [&] {
      net.zero_grad();
      torch::Tensor loss = loss_of(net(batch(rank)));
      if (rank == 2) loss = loss * std::numeric_limits<double>::quiet_NaN();
      loss.backward();
    };
    pass();
    expect_one(grads(net, quickly()), "nan", RankSet{2}, "since backward on rank 2");
    expect_one(grads(net, quickly().local(true)), "nan", RankSet{2}, "that backward left on rank 2");
    watching.reset();
    pass();
    expect_one(grads(net, quickly()), "nan", RankSet::all(3), "NaN in all 6 gradients on ranks 0-2");
  });
}

TEST(Grads, AnOverflowOfTheReductionIsToldFromOneOfARank) {
  spawn_ranks(2, [](int, int) {
    const torch::Tensor parameter = torch::zeros({4}).requires_grad_(true);
    const auto watching = watch_grads(parameter);
    (parameter * 3e38).sum().backward();
    dist::all_reduce(parameter.grad());
    expect_one(grads(parameter, quickly()), "inf", RankSet::all(2),
               "although every rank's own was finite after backward");
  });
}

TEST(Grads, WhatTheProgramHasMadeOfAGradientIsLookedAtUntilACollectiveBegins) {
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor parameter = torch::zeros({4}).requires_grad_(true);
    const auto watching = watch_grads(parameter);
    const auto pass = [&] {
      parameter.mutable_grad() = torch::Tensor();
      (parameter * (1024.0 + rank)).sum().backward();
    };
    pass();
    if (rank != 2) parameter.mutable_grad().div_(1024);  // the loss scale
    expect_one(grads(parameter, quickly().local(true)), "outlier", RankSet{2}, "norm", Severity::note);
    pass();
    if (rank == 1) parameter.mutable_grad().fill_(INFINITY);
    expect_one(grads(parameter, quickly().local(true)), "inf", RankSet{1},
               "since backward on rank 1, before anything was reduced");
    // No outlier besides, though the norm of what is finite is another one.
    const std::vector<torch::Tensor> both = {parameter, torch::ones({4}).requires_grad_(true)};
    const auto watching_both = watch_grads(both);
    pass();
    (both[1] * 1024).sum().backward();
    if (rank == 1) parameter.mutable_grad().fill_(INFINITY);
    expect_one(grads(both, quickly().local(true)), "inf", RankSet{1}, "Inf in 1 of 2 gradients since backward");
    // A reduction has begun: what backward left is what there was before it.
    pass();
    dist::all_reduce(parameter.mutable_grad());
    expect_one(grads(parameter, quickly().local(true)), "ok", RankSet::all(3), "sane", Severity::note);
  });
}

TEST(Grads, AGradientThatOneRankLacksIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    all_reduce_gradients(net, 3);
    if (rank == 1) net.spare->weight.mutable_grad() = torch::Tensor();
    const Report report = grads(net, quickly());
    expect_one(report, "missing", RankSet{1}, "rank 1 has no gradient for spare.weight, which ranks 0,2 have");
    EXPECT_EQ(report.findings[0].reference_ranks, (RankSet{0, 2}));
  });
}

TEST(Grads, NobodyHasAGradientIsANote) {
  spawn_ranks(2, [](int rank, int) {
    Net net;
    expect_one(grads(net, quickly()), "missing", RankSet::all(2), "between backward and zero_grad", Severity::note);
    loss_of(net.forward(batch(rank), false)).backward();
    for (auto* layer : {&net.first, &net.second}) all_reduce_gradients(**layer, 2);
    const Report report = grads(net, quickly());
    expect_one(report, "unused", RankSet::all(2), "no rank has a gradient for 2 of 6 parameters", Severity::note);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("spare.weight", "spare.bias"));
  });
}

TEST(Grads, ForwardUnderNoSyncBeforeTheStepIsAFaultOnceTheOptimizerHasStepped) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    torch::Tensor loss;
    {
      const auto scope = net.no_sync();
      loss = loss_of(net(batch(rank)));
    }
    loss.backward();
    EXPECT_TRUE(grads(net, quickly()).ok());
    optimizer.step();
    const Report report = grads(net, quickly());
    expect_one(report, "mismatch", RankSet::all(2), "the last forward ran under no_sync()");
    EXPECT_THAT(report.findings[0].message, HasSubstr("an optimizer has stepped with them"));
  });
}

TEST(Grads, ReducedAlthoughBackwardRanWithinNoSyncIsNamed) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Net>());
    const auto watching = watch_grads(net);
    const torch::Tensor loss = loss_of(net(batch(rank)));
    {
      const auto scope = net.no_sync();
      loss.backward();
    }
    const Report report = grads(net, quickly());
    expect_one(report, "mismatch", RankSet::all(2), "ran within no_sync()");
    EXPECT_EQ(report.findings[0].kind, "reduction");
  });
}

TEST(Grads, TheSameBatchAgainIsToldAsStale) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    const auto watching = watch_grads(net);
    // Steps that change nothing, so that the same batch has the same gradient.
    torch::optim::Adam optimizer(net.parameters(), 0.0);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      loss_of(net.forward(batch(rank, rank == 1 ? 0 : step))).backward();
      all_reduce_gradients(net, 3);
      const Report report = grads(net, quickly());
      if (step == 0) expect_fine(report);
      if (step > 0) expect_one(report, "stale", RankSet{1}, "the very gradients of the step before", Severity::note);
      if (step == 3) EXPECT_THAT(report.findings[0].message, HasSubstr("for 3 steps"));
      optimizer.step();
    }
  });
}

TEST(Grads, ARankThatSkipsBackwardIsTold) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      if (rank != 2 || step == 0) loss_of(net.forward(batch(rank, step))).backward();
      all_reduce_gradients(net, 3);
      const Report report = grads(net, quickly());
      if (step == 1) {
        ASSERT_FALSE(report.findings.empty());
        EXPECT_EQ(report.findings[0].verdict, "stale") << report;
        EXPECT_EQ(report.findings[0].ranks, RankSet{2});
      }
      optimizer.step();
    }
  });
}

TEST(Grads, DifferentModulesEndInAFinding) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> parameters;
    parameters.insert("a", torch::ones({2}).requires_grad_());
    parameters.insert("b", torch::ones({rank == 1 ? 3 : 2}).requires_grad_());
    parameters.insert("c", torch::ones({2}).requires_grad_(rank != 2));
    for (auto& each : parameters) each.value().mutable_grad() = torch::ones_like(each.value());
    const Report report = grads(parameters, quickly());
    ASSERT_EQ(report.findings.size(), 2U) << report;
    EXPECT_EQ(report.findings[0].verdict, "shape_mismatch");
    EXPECT_EQ(report.findings[0].ranks, RankSet{1});
    EXPECT_EQ(report.findings[1].ranks, RankSet{2});
    EXPECT_THAT(report.findings[1].message, HasSubstr("requires_grad"));
    const Report calls = rank == 0 ? grads(parameters, quickly()) : grads(parameters, quickly().local(true));
    ASSERT_EQ(calls.findings.size(), 1U);
    EXPECT_EQ(calls.findings[0].verdict, "order_mismatch");
    EXPECT_THAT(calls.findings[0].message, HasSubstr("ranks called grads for different things"));
  });
}

TEST(Grads, ARankThatDoesNotCallIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    if (rank != 1)
      expect_one(grads(net, quickly().deadline(std::chrono::milliseconds(200))), "missing", RankSet{1},
                 "rank 1 did not call grads");
    dist::barrier();
    expect_one(grads(net, quickly()), "missing", RankSet::all(3), "no gradient", Severity::note);
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
    expect_fine(grads(embedding, quickly()));
    pass({1, 3, 3}, 1 + rank);
    expect_one(grads(embedding, quickly()), "mismatch", RankSet::all(2), "exactly 2 times rank 0's");
    pass({1, rank ? 4 : 3, 5}, 1);
    expect_one(grads(embedding, quickly()), "mismatch", RankSet::all(2), "differ");
    EXPECT_TRUE(grads(embedding, quickly().local(true)).ok());
  });
}

// ---- what is wrong before the reduction ---------------------------------------------------------------------------

TEST(GradsLocal, AnOutlierAndAnotherLossScaleAreNotes) {
  for (const int ranks : {2, 3, 5}) {
    spawn_ranks(ranks, [ranks](int rank, int) {
      Net net;
      (loss_of(net.forward(batch(rank))) * (rank == 1 ? 1024.0 : 1.0)).backward();
      const Report report = grads(net, quickly().local(true));
      expect_one(report, "outlier", ranks == 2 ? RankSet::all(2) : RankSet{1}, "another loss scale", Severity::note);
      expect_fine(grads(net, quickly().local(true).threshold(1e6)));
    });
  }
}

TEST(GradsLocal, OneParameterOfOneRankIsAnOutlier) {
  spawn_ranks(4, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    if (rank == 3) net.second->weight.mutable_grad() *= 1e-3;
    const Report report = grads(net, quickly().local(true));
    expect_one(report, "outlier", RankSet{3}, "1 of 6 gradients", Severity::note);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("second.weight"));
  });
}

TEST(GradsLocal, TheParameterThatMakesARankAnOutlierIsNamed) {
  for (const int ranks : {2, 3, 5}) {
    spawn_ranks(ranks, [ranks](int rank, int) {
      Net net;
      loss_of(net.forward(batch(rank))).backward();
      if (rank == 1) net.spare->weight.mutable_grad() *= 1e6;
      const Report report = grads(net, quickly().local(true));
      expect_one(report, "outlier", ranks == 2 ? RankSet::all(2) : RankSet{1}, "because of spare.weight (norm",
                 Severity::note);
      EXPECT_THAT(names(report.findings[0]), ElementsAre("spare.weight"));
      EXPECT_EQ(report.findings[0].tensors[0].norms.size(), static_cast<size_t>(ranks));
    });
  }
}

TEST(GradsLocal, ZeroOnOneRankAndInfOnAnother) {
  spawn_ranks(3, [](int rank, int) {
    Net net;
    loss_of(net.forward(batch(rank))).backward();
    if (rank == 0)
      for (auto& parameter : net.parameters()) parameter.mutable_grad().zero_();
    expect_one(grads(net, quickly().local(true)), "outlier", RankSet{0}, "every gradient of rank 0 is zero",
               Severity::note);
    if (rank == 0) loss_of(net.forward(batch(rank))).backward();
    if (rank == 1) net.first->bias.mutable_grad()[0] = INFINITY;
    const Report report = grads(net, quickly().local(true));
    expect_one(report, "inf", RankSet{1}, "that backward left on rank 1");
    EXPECT_EQ(report.findings[0].tensors[0].count, 1);
  });
}

TEST(GradsLocal, MissingBeforeTheReductionIsAFaultWhereItCantBeMended) {
  spawn_ranks(2, [](int rank, int) {
    ddp::SimpleDistributedDataParallel simple(std::make_shared<Net>());
    loss_of(simple(batch(rank), rank == 0)).backward();
    expect_one(grads(simple, quickly().local(true)), "missing", RankSet{1}, "sync_gradients()");
    Net bare;
    loss_of(bare.forward(batch(rank), rank == 0)).backward();
    expect_one(grads(bare, quickly().local(true)), "missing", RankSet{1},
               "rank 1 has no gradient for 2 of 6 parameters", Severity::note);
  });
}

TEST(GradsLocal, EqualBeforeAnyReductionIsTheSameBatch) {
  spawn_ranks(2, [](int, int) {
    Net net;
    const auto watching = watch_grads(net);
    loss_of(net.forward(batch(0))).backward();
    expect_one(grads(net, quickly().local(true)), "duplicate_data", RankSet::all(2), "the same batch", Severity::note);
    expect_fine(grads(net, quickly()));
  });
}

// ---- the observer -------------------------------------------------------------------------------------------------

TEST(GradWatch, SketchesAreLinearAndKnowPlaces) {
  for (const int64_t size : {1, 7, 500, 513, 100000}) {
    const torch::Tensor a = torch::arange(size, at::kDouble).mul(0.31).sin(), b = a.cos();
    const Sketch of_a = sketch_of(a), of_b = sketch_of(b), of_sum = sketch_of(3 * a - b);
    for (size_t i = 0; i < of_a.size(); ++i) EXPECT_NEAR(of_sum[i], 3 * of_a[i] - of_b[i], 1e-9);
    if (size > 1) EXPECT_NE(of_a, sketch_of(a.flip(0)));
  }
  EXPECT_EQ(sketch_of(torch::ones({3}, at::kLong)), Sketch{});
  EXPECT_EQ(sketch_of(torch::zeros({0})), Sketch{});
}

TEST(GradWatch, EndsWithItsHandleAndLetsOthersStay) {
  const torch::Tensor parameter = torch::ones({3}).requires_grad_();
  const auto pass = [&] {
    parameter.mutable_grad() = torch::Tensor();
    (parameter * 2).sum().backward();
  };
  std::optional<GradWatch> first(watch_grads(parameter)), second(watch_grads(parameter));
  pass();
  EXPECT_EQ(first->cost().gradients, 1);
  EXPECT_EQ(second->cost().gradients, 1);
  first.reset();
  pass();
  EXPECT_EQ(second->cost().gradients, 2);
  second.reset();
  pass();
  EXPECT_FALSE(gradients_seen(gradients_of(parameter, "")).has_value());
}

// Rule 9: looking does not touch.
TEST(GradWatch, LeavesTrainingBitIdentical) {
  for (const bool view : {false, true}) {
    spawn_ranks(2, [view](int rank, int) {
      const auto train = [&](bool look) {
        ddp::DistributedDataParallel net(std::make_shared<Net>(), ddp::Options().gradient_as_bucket_view(view));
        torch::optim::Adam optimizer(net.parameters(), 0.01);
        std::optional<GradWatch> watching;
        if (look) watching.emplace(watch_grads(net));
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          loss_of(net(batch(rank, step))).backward();
          if (look) EXPECT_TRUE(grads(net, quickly()).ok());
          optimizer.step();
        }
        return fingerprint(net.parameters());
      };
      EXPECT_EQ(train(false), train(true));
    });
  }
}

}  // namespace
}  // namespace lockstep::inspect
