// time_sync and buckets: what is timed and what is left behind. No time is asserted, only what must hold of any.
#include "inspectors/timing/time_sync.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "inspectors/timing/buckets.h"
#include "inspectors/trace/step_reductions.h"
#include "inspectors/verify/watch.h"
#include "lockstep/ddp.h"
#include "tests/ddp/models.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;

TimeSyncOptions time_sync_options() { return TimeSyncOptions().steps(4).deadline(std::chrono::minutes(5)); }

struct SgdTraining {
  explicit SgdTraining(ddp::Options options = ddp::Options().bucket_cap_mb(0.0005))
      : net(equal_module(), std::move(options)),
        optimizer(net.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {}
  /// Threads share the generator, so values come from elsewhere.
  static test::Mlp equal_module() {
    test::Mlp module;
    const torch::NoGradGuard no_grad;
    for (auto& each : module->parameters())
      each.copy_(torch::arange(each.numel()).reshape(each.sizes()).mul(0.013).sin());
    return module;
  }
  void step() {
    optimizer.zero_grad();
    net(torch::ones({4, 8})).pow(2).mean().backward();
    optimizer.step();
  }
  torch::Tensor values() const {
    std::vector<torch::Tensor> flat;
    for (const auto& each : net.parameters()) flat.push_back(each.detach().flatten());
    return torch::cat(flat).clone();
  }
  ddp::DistributedDataParallel<test::MlpImpl> net;
  torch::optim::SGD optimizer;
};

TEST(TimeSync, TimesAStepOfAWrapperAndPutsEverythingBack) {
  spawn_ranks(2, [](int, int) {
    SgdTraining training;
    training.step();
    const torch::Tensor before = training.values();
    int calls = 0;
    auto step = [&] {
      ++calls;
      training.step();
      count_step();
    };
    const int64_t steps = training.net.steps(), counted_before = counted_steps();
    const TimeSyncReport report = time_sync(time_sync_options(), step, training.net, training.optimizer);
    EXPECT_GE(calls, 2 * 4 + 3);
    EXPECT_TRUE(torch::equal(training.values(), before));
    EXPECT_EQ(training.net.steps(), steps);
    EXPECT_EQ(counted_steps(), counted_before);

    ASSERT_EQ(report.ranks.size(), 2U);
    EXPECT_EQ(report.findings[0].inspector, "time_sync");
    EXPECT_EQ(report.findings[0].verdict, Verdict::ok);
    EXPECT_TRUE(report.ok());
    for (const StepTimes& each : report.ranks) {
      EXPECT_GT(each.synchronised.median, 0);
      EXPECT_LE(each.unsynchronised.low, each.unsynchronised.median);
      EXPECT_LE(each.unsynchronised.median, each.unsynchronised.high);
      EXPECT_GT(each.forward, 0);
      EXPECT_GT(each.backward, 0);
      EXPECT_GT(each.rest, 0);
    }
    // Every parameter is reduced once: the sum of the wrapper's buckets, and nothing else.
    int64_t bytes = 0;
    for (const auto& bucket : training.net.buckets()) bytes += bucket.bytes;
    EXPECT_EQ(report.reduced_bytes, bytes);
    EXPECT_EQ(report.reductions, static_cast<int64_t>(training.net.buckets().size()));
    ASSERT_TRUE(report.reduction.has_value());
    EXPECT_GT(report.reduction->median, 0);
    ASSERT_TRUE(report.hidden.has_value());
    EXPECT_GE(*report.hidden, 0);
    EXPECT_LE(*report.hidden, 1);
    ASSERT_EQ(report.speed_up.size(), 3U);
    EXPECT_EQ(report.speed_up[2].first, 8);
    std::ostringstream table;
    table << report;
    EXPECT_THAT(table.str(), HasSubstr("not synchronised"));
    EXPECT_THAT(table.str(), HasSubstr("accumulating over 2 steps"));
  });
}

TEST(TimeSync, AnUntrainedWrapperIsAsNewAfterwards) {
  spawn_ranks(2, [](int, int) {
    SgdTraining looked, plain;
    auto step = [&] { looked.step(); };
    time_sync(time_sync_options(), step, looked.net, looked.optimizer);
    EXPECT_EQ(looked.net.steps(), 0);
    EXPECT_TRUE(looked.optimizer.state().empty());
    for (int i = 0; i < 3; ++i) {
      looked.step();
      plain.step();
    }
    EXPECT_TRUE(torch::equal(looked.values(), plain.values()));
  });
}

TEST(TimeSync, TheSimpleWrapperAndAStepThatIsToldWhetherToSynchronise) {
  spawn_ranks(2, [](int, int) {
    auto simple = ddp::SimpleDistributedDataParallel(SgdTraining::equal_module());
    auto step = [&] {
      simple->zero_grad();
      simple(torch::ones({4, 8})).sum().backward();
      simple.sync_gradients();
    };
    EXPECT_EQ(time_sync(time_sync_options(), step, simple).reductions, 6);  // one for each parameter

    test::Mlp module = SgdTraining::equal_module();
    auto by_hand = [&](bool synchronise) {
      module->zero_grad();
      module(torch::ones({4, 8})).sum().backward();
      if (synchronise) dist::all_reduce(module->fc1->weight.grad());
    };
    EXPECT_EQ(time_sync(time_sync_options(), by_hand, module).reductions, 1);
  });
}

TEST(TimeSync, ThereMustBeSomethingToLeaveOut) {
  spawn_ranks(1, [](int, int) {
    test::Mlp module;
    auto step = [&] { module(torch::ones({4, 8})); };
    EXPECT_THROW(time_sync(time_sync_options(), step, module), dist::ArgumentError);
  });
}

TEST(TimeSync, AStepThatThrowsLeavesStateAsItWas) {
  spawn_ranks(1, [](int, int) {
    SgdTraining training;
    const torch::Tensor before = training.values();
    int calls = 0;
    auto step = [&] {
      training.step();
      if (++calls == 5) throw std::runtime_error("out of data");
    };
    EXPECT_THROW(time_sync(time_sync_options(), step, training.net, training.optimizer), std::runtime_error);
    EXPECT_TRUE(torch::equal(training.values(), before));
  });
}

TEST(TimeSync, ARankThatNeedsMoreIsAStraggler) {
  spawn_ranks(3, [](int rank, int) {
    SgdTraining training;
    const torch::Tensor matrix = torch::ones({200, 200});
    auto step = [&] {
      // Enough work to stand out whatever else the machine does.
      for (int i = 0; rank == 1 && i < 200; ++i) matrix.mm(matrix);
      training.step();
    };
    const TimeSyncReport report = time_sync(time_sync_options(), step, training.net, training.optimizer);
    EXPECT_EQ(report.slowest, 1);
    ASSERT_EQ(report.findings.size(), 2U);
    EXPECT_EQ(report.findings[1].verdict, Verdict::straggler);
    EXPECT_EQ(report.findings[1].severity, Severity::note);
    EXPECT_EQ(report.findings[1].ranks, RankSet{1});
  });
}

TEST(TimeSync, AStragglerIsSlowerBeyondWhatTimesVaryBy) {
  const auto is_straggler = [](const std::vector<Spread>& times) {
    TimeSyncReport report;
    for (const Spread& each : times)
      report.ranks.push_back({.rank = static_cast<int>(report.ranks.size()), .unsynchronised = each});
    detail::conclude(report);
    return detail::is_straggler(report, 1.2);
  };
  const Spread steady{1, 0.9, 1.1}, slow{1.5, 1.4, 1.6}, wavering{1.5, 0.8, 2}, slightly_slow{1.15, 1.14, 1.16};
  EXPECT_TRUE(is_straggler({steady, slow}));
  EXPECT_TRUE(is_straggler({steady, slow, steady}));
  EXPECT_TRUE(is_straggler({steady, slow, wavering, steady})) << "one of the others that wavers hides nobody";
  EXPECT_FALSE(is_straggler({steady, wavering}));
  EXPECT_FALSE(is_straggler({steady, wavering, steady}));
  EXPECT_FALSE(is_straggler({steady, slightly_slow, steady}));
  EXPECT_FALSE(is_straggler({slow}));
}

TEST(StepReductions, WhatIsBeyondAnotherListIsCountedOnce) {
  const StepReduction small{"all_reduce", "float32", {1}, -1, 4}, large{"all_reduce", "float32", {8}, -1, 32};
  EXPECT_EQ(beyond({small, large, small}, {small}), (std::vector<StepReduction>{large, small}));
}

TEST(Buckets, BeforeAStepThereAreSizesAndNoTimes) {
  spawn_ranks(2, [](int, int) {
    SgdTraining training;
    const BucketsReport report = buckets(training.net, "net");
    EXPECT_EQ(report.buckets.size(), 1U);
    EXPECT_FALSE(report.step.has_value());
    ASSERT_EQ(report.ranks.size(), 2U);
    EXPECT_TRUE(report.ranks[0].buckets.empty());
    std::ostringstream text;
    text << report;
    EXPECT_THAT(text.str(), HasSubstr("no synchronised step yet"));
  });
}

TEST(Buckets, TimesAreInTheOrderInWhichThingsHappen) {
  spawn_ranks(2, [](int rank, int) {
    SgdTraining training;
    for (int i = 0; i < 3; ++i) training.step();
    dist::all_reduce(torch::ones({3}));  // of the program's own, after the step
    for (const ddp::Bucket& each : training.net.buckets()) dist::all_reduce(torch::ones({each.bytes / 4}));
    const BucketsReport report = buckets(training.net, "net");
    EXPECT_EQ(report.step, 3);
    ASSERT_GT(report.buckets.size(), 1U);
    const RankBuckets& mine = report.ranks[static_cast<size_t>(rank)];
    ASSERT_EQ(mine.buckets.size(), report.buckets.size());
    for (const BucketTimes& each : mine.buckets) {
      ASSERT_TRUE(each.start.has_value() && each.end.has_value());
      EXPECT_GT(each.ready, 0);
      EXPECT_GE(*each.end, *each.start);
      EXPECT_LE(each.ready, mine.backward_end);
      EXPECT_GE(*each.start, each.ready);
    }
    EXPECT_GE(*mine.buckets[1].start, *mine.buckets[0].start);
    ASSERT_TRUE(mine.hidden.has_value());
    EXPECT_GE(*mine.hidden, 0);
    EXPECT_LE(*mine.hidden, 1);
    std::ostringstream text;
    text << report;
    EXPECT_THAT(text.str(), HasSubstr("fc1.weight"));
    EXPECT_THAT(text.str(), HasSubstr("rank 1: backward"));
  });
}

TEST(Buckets, AHookThatReducesOtherwiseHasReadyTimesAlone) {
  spawn_ranks(2, [](int, int) {
    SgdTraining training;
    training.net.register_comm_hook([](ddp::GradBucket& bucket) {
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
      future->markCompleted(bucket.getBuffer());
      return future;
    });
    training.step();
    const BucketsReport report = buckets(training.net, "net");
    ASSERT_FALSE(report.ranks[0].buckets.empty());
    EXPECT_GT(report.ranks[0].buckets[0].ready, 0);
    EXPECT_FALSE(report.ranks[0].buckets[0].start.has_value());
    EXPECT_FALSE(report.ranks[0].hidden.has_value());
  });
}

}  // namespace
}  // namespace lockstep::inspect
