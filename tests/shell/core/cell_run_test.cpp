// A cell's states without processes.
#include <gtest/gtest.h>

#include "shell/cells/cell_run.h"

namespace lockstep::shell {
namespace {

using Phase = CellRun::Phase;

protocol::Done done(CellStatus status, bool root_cause = true) {
  protocol::Done message;
  message.status = status;
  if (status != CellStatus::ok && status != CellStatus::interrupted)
    message.error = protocol::CellError{.type = "e", .root_cause = root_cause};
  return message;
}

CellRun running(int ranks) {
  CellRun run(3, 2, RankSet::all(ranks), false);
  run.started();
  return run;
}

TEST(CellRun, RunsWhenAllHaveLoaded) {
  CellRun run(1, 1, {0, 1}, true);
  run.loaded(0, {.cell = 1, .ok = true});
  EXPECT_FALSE(run.load_answered());
  run.loaded(1, {.cell = 1, .ok = true});
  EXPECT_TRUE(run.may_run());
}

TEST(CellRun, WhoeverIsInterruptedForAStallIsAborted) {
  CellRun run = running(2);
  run.stalled();
  run.done(0, done(CellStatus::aborted, false));
  run.done(1, done(CellStatus::interrupted));
  EXPECT_EQ(run.status(), CellStatus::aborted);
  EXPECT_EQ(run.rank_status().at(1), CellStatus::aborted);
}

TEST(CellRun, ARefusalOrADeathKeepsItFromRunning) {
  CellRun run(1, 1, {0, 1, 2}, true);
  run.loaded(0, {.cell = 1, .ok = true});
  run.loaded(1, {.cell = 1, .ok = false, .message = "no f()"});
  run.dead(2, {});
  EXPECT_TRUE(run.load_answered());
  EXPECT_FALSE(run.may_run());
  EXPECT_EQ(run.in(Phase::loaded), RankSet{0});
  EXPECT_EQ(run.refusals().at("no f()"), RankSet{1});
}

TEST(CellRun, TheFirstCauseDecides) {
  auto run = running(3);
  run.done(0, done(CellStatus::aborted, false));
  run.done(1, done(CellStatus::error));
  EXPECT_FALSE(run.over());
  run.dead(2, {});
  EXPECT_TRUE(run.over());
  EXPECT_EQ(run.status(), CellStatus::error);
}

TEST(CellRun, ConsequencesAloneAreStillNoSuccess) {
  auto run = running(2);
  run.done(0, done(CellStatus::ok));
  run.done(1, done(CellStatus::aborted, false));
  EXPECT_EQ(run.status(), CellStatus::aborted);
}

TEST(CellRun, OfConsequencesAnAbortSaysWhatItWas) {
  auto run = running(3);
  run.done(0, done(CellStatus::error, false));  // another rank closed their group
  run.done(1, done(CellStatus::aborted, false));
  run.done(2, done(CellStatus::error, false));
  EXPECT_EQ(run.status(), CellStatus::aborted);
}

TEST(CellRun, StuckWhenAllThatAreLeftWait) {
  auto run = running(3);
  run.waiting(0, {});
  run.done(1, done(CellStatus::ok));
  EXPECT_FALSE(run.stuck());
  run.waiting(2, {});
  EXPECT_TRUE(run.stuck());
  run.done(0, done(CellStatus::ok));
  run.done(2, done(CellStatus::ok));
  EXPECT_FALSE(run.stuck());
  EXPECT_EQ(run.status(), CellStatus::ok);
}

TEST(CellRun, ATimeLimitTurnsInterruptsIntoTimeouts) {
  auto run = running(2);
  run.done(0, done(CellStatus::ok));
  run.timed_out();
  run.done(1, done(CellStatus::interrupted));
  EXPECT_EQ(run.status(), CellStatus::timeout);
  EXPECT_EQ(run.rank_status().at(1), CellStatus::timeout);
}

TEST(CellRun, OnlyADeathLeavesNoStepsBehind) {
  auto run = running(2);
  auto message = done(CellStatus::error);
  message.steps_done = 4;
  run.done(0, message);
  run.dead(1, {});
  EXPECT_EQ(run.steps_done(), (std::map<int, int64_t>{{0, 4}}));
}

}  // namespace
}  // namespace lockstep::shell
