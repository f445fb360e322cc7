// Rows about loops and about what takes long, as text.
#include "shell/terminal/status_text.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

const Screen kPlain{.unicode = true};

ProgressEvent loop(std::map<int, int64_t> done, std::optional<int64_t> total, double seconds,
                   LoopState state = LoopState::running) {
  ProgressEvent event{.cell = 1, .loop = 1, .label = "epoch", .done = std::move(done), .state = state};
  for (const auto& [rank, count] : event.done) {
    event.ranks.insert(rank);
    if (total) event.total[rank] = *total;
    event.elapsed_s[rank] = seconds;
  }
  return event;
}

using Rows = std::vector<std::string>;

}  // namespace

TEST(StatusText, ALoopWithItsSlowestAndFastestRank) {
  EXPECT_EQ(progress_text(loop({{0, 641}, {1, 620}, {2, 621}, {3, 598}}, 1000, 12), 0, kPlain),
            "epoch  62% 620/1000 [0:12<0:08, 51.7 it/s]  slowest rank 3: 598, fastest rank 0: 641");
  EXPECT_EQ(progress_text(loop({{0, 50}, {1, 51}}, 100, 10), 0, kPlain), "epoch  50% 50/100 [0:10<0:10, 5.05 it/s]")
      << "a turn more is level";
  EXPECT_EQ(progress_text(loop({{0, 2}}, 10, 8), 0, kPlain), "epoch  20% 2/10 [0:08<0:32, 4 s/it]");
  EXPECT_EQ(progress_text(loop({{0, 2}}, 10, 8), 2, kPlain), "epoch  20% 2/10 [0:10<0:40, 5 s/it]");
  EXPECT_EQ(progress_text(loop({{0, 0}, {1, 0}}, 10, 0), 0, kPlain), "epoch  0% 0/10 [0:00]")
      << "no speed, no estimate";
}

TEST(StatusText, ALoopOfUnknownLength) {
  EXPECT_EQ(progress_text(loop({{0, 30}, {1, 40}}, {}, 10), 0, kPlain),
            "epoch  35 it [0:10, 3.5 it/s]  slowest rank 0: 30, fastest rank 1: 40");
}

TEST(StatusText, RanksWithDifferentTotalsAreComparedByTheirParts) {
  ProgressEvent event = loop({{0, 50}, {1, 50}}, 100, 10);
  event.total[1] = 200;
  EXPECT_EQ(progress_text(event, 0, kPlain),
            "epoch  33% 50/150 [0:10<0:30, 5 it/s]  slowest rank 1: 25%, fastest rank 0: 50%");
}

TEST(StatusText, TheEndOfALoop) {
  ProgressEvent event = loop({{0, 1000}, {1, 1000}}, 1000, 20, LoopState::completed);
  EXPECT_EQ(progress_text(event, 5, kPlain), "epoch  100% 1000/1000 [0:20, 50 it/s]");
  event.elapsed_s[1] = 80;
  EXPECT_EQ(progress_text(event, 0, kPlain),
            "epoch  100% 1000/1000 [1:20, 31.2 it/s]  slowest rank 1: 1:20, fastest rank 0: 20.0 s");
  EXPECT_EQ(progress_text(loop({{0, 7}, {1, 3}}, 10, 1, LoopState::stopped), 0, kPlain),
            "epoch  stopped at 50% 5/10 [0:01, 5 it/s]  slowest rank 1: 3, fastest rank 0: 7");
  EXPECT_EQ(progress_text(loop({{0, 0}}, 0, 0, LoopState::completed), 0, kPlain), "epoch  100% 0/0 [0:00]");
}

TEST(StatusText, RunningRanksAndTheirCollectives) {
  ActivityEvent event{.phase = ActivityEvent::Phase::running, .cell = 3, .elapsed_s = 75};
  event.parts = {{.ranks = {0, 2},
                  .state = "in_collective",
                  .collective = "all_reduce",
                  .group = "default",
                  .seq = 17,
                  .since_s = 61},
                 {.ranks = {1}, .state = "running"},
                 {.ranks = {3}, .state = "running", .collective = "all_gather", .group = "1", .seq = 2, .since_s = 3},
                 {.ranks = {4}, .state = "done"}};
  EXPECT_EQ(activity_rows(event, kPlain, false),
            (Rows{"… cell 3 running for 1:15", "    ranks 0,2: in all_reduce #17 for 1:01",
                  "    rank 1: running, in no collective",
                  "    rank 3: running, all_gather #2 of group 1 in flight for 0:03", "    rank 4: done"}));
  event.parts.resize(2);
  EXPECT_EQ(
      activity_rows(event, kPlain, true),
      (Rows{"… cell 3 running for 1:15; ranks 0,2: in all_reduce #17 for 1:01; rank 1: running, in no collective"}));
}

TEST(StatusText, TheStartHasAnEstimateOnlyWhereOneIsKnown) {
  ActivityEvent event{.phase = ActivityEvent::Phase::starting, .elapsed_s = 5};
  event.step = protocol::StartStep{.what = "the headers of LibTorch", .number = 1, .count = 2, .last_s = {}};
  event.step_s = 4;
  event.parts = {{.ranks = {0, 1}, .state = "connected"}};
  EXPECT_EQ(activity_rows(event, kPlain, false),
            (Rows{"… starting for 0:05", "    building the precompiled header: step 1 of 2, the headers of LibTorch",
                  "    ranks 0-1: up, waiting for the compiler and the other ranks"}));
  event.step->last_s = 31;
  EXPECT_EQ(
      activity_rows(event, kPlain, false)[1],
      "    building the precompiled header: step 1 of 2, the headers of LibTorch, 0:04 of 0:31 as in the last build");
  event.step_s = 40;
  EXPECT_EQ(activity_rows(event, kPlain, false)[1],
            "    building the precompiled header: step 1 of 2, the headers of LibTorch, 0:40, longer than in the last "
            "build (0:31)");
  EXPECT_TRUE(activity_rows({}, kPlain, false).empty());
}

}  // namespace lockstep::shell
