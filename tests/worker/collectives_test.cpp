// Two ranks in collectives: what the rank says while it waits, how it is freed, and that it goes on afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using ::testing::HasSubstr;

struct TwoRanks : ::testing::Test {
  void SetUp() override { hub.start_ready(); }

  void regroup() {
    ++generation;
    for (const int rank : {0, 1}) hub.send(Regroup{generation, RankSet::all(2), {}, 30}, rank);
    for (const int rank : {0, 1}) {
      const auto regrouped = hub.expect<Regrouped>(rank);
      EXPECT_TRUE(regrouped.ok) << regrouped.message;
      EXPECT_EQ(regrouped.generation, generation);
    }
  }
  bool waits(int rank) {
    return eventually([&] { return hub.query(question::Status(), rank).state == RankState::waiting; });
  }

  FakeHub hub{2};
  int64_t generation = 0;
};

TEST_F(TwoRanks, ReduceAndCountTheirCollectives) {
  const auto done = hub.run_cell("with_torch", "sums");
  EXPECT_EQ(done.status, CellStatus::ok) << (done.error ? done.error->message : "");
  EXPECT_EQ(hub.output(done.cell), "3");
  EXPECT_EQ(hub.output(done.cell, Stream::standard_output, 1), "3");
  EXPECT_EQ(done.collectives.at("default"), 1);
  EXPECT_FALSE(done.regroup);
  const auto log = hub.query(question::Collectives{5}).collectives;
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].op, "all_reduce");
  EXPECT_EQ(log[0].shape, std::vector<int64_t>{2});
  EXPECT_EQ(log[0].state, "done");
  EXPECT_EQ(log[0].where, "cell 7, line 3");
}

TEST_F(TwoRanks, MeetInABarrierOfTheWorkersOwn) {
  for (const int rank : {0, 1}) hub.send(Builtin{50, function::Barrier()}, rank);
  for (const int rank : {0, 1}) EXPECT_EQ(hub.expect<Done>(rank).status, CellStatus::ok);
  for (const int rank : {0, 1}) hub.send(Builtin{51, Unreadable{"horoscope"}}, rank);
  for (const int rank : {0, 1}) EXPECT_EQ(hub.expect<Done>(rank).status, CellStatus::error);
}

TEST_F(TwoRanks, WaitForARankThatHasLeftIsToldAndAborted) {
  const auto cell = hub.load("with_torch", "skips");
  hub.run(cell);
  const auto left = hub.expect<Done>(1);
  EXPECT_EQ(left.status, CellStatus::ok);
  ASSERT_TRUE(waits(0));
  hub.send(PeersDone{cell, {1}, CellStatus::ok, left.collectives}, 0);
  const auto waiting = hub.expect<Waiting>(0);
  EXPECT_EQ(waiting.cell, cell);
  EXPECT_EQ(waiting.missing, RankSet{1});
  EXPECT_EQ(waiting.op.name, "barrier");
  EXPECT_EQ(waiting.where, "cell 7, line 6");
  hub.send(Abort{"rank 1 has left the cell"}, 0);
  const auto done = hub.expect<Done>(0);
  EXPECT_EQ(done.status, CellStatus::aborted);
  ASSERT_TRUE(done.error);
  EXPECT_FALSE(done.error->root_cause);
  EXPECT_EQ(done.error->where, "cell 7, line 6");
  EXPECT_TRUE(done.regroup);
  regroup();
  EXPECT_EQ(hub.run_cell("with_torch", "sums").status, CellStatus::ok);
}

TEST_F(TwoRanks, SayThatTheyWaitForLongAndWhatTheyAreAt) {
  const auto cell = hub.load("with_torch", "waits_for_one");
  hub.run(cell);
  const auto wait = hub.expect<LongWait>(0);
  EXPECT_EQ(wait.cell, cell);
  EXPECT_EQ(wait.op.name, "barrier");
  const auto waiting = hub.query(question::Hang(), 0);
  EXPECT_EQ(waiting.waits.at(std::to_string(wait.entry)), waiting.last);
  EXPECT_THAT(waiting.last, HasSubstr("cell 7, line"));
  ASSERT_TRUE(waiting.frames);
  EXPECT_TRUE(std::ranges::any_of(*waiting.frames, [](const question::Frame& frame) {
    return frame.function.find("lockstep::dist::barrier") != std::string::npos;
  }));
  EXPECT_TRUE(waiting.held);
  const auto looping = hub.query(question::Hang{.sites = {{cell, 0, 0}, {999, 0, 0}}}, 1);
  EXPECT_TRUE(looping.waits.empty());
  ASSERT_TRUE(looping.frames);
  EXPECT_FALSE(looping.frames->empty());
  EXPECT_FALSE(looping.asleep);
  ASSERT_EQ(looping.sites.size(), 2u);
  EXPECT_EQ(looping.sites[1], "") << "no such cell";
  for (const int rank : {0, 1}) hub.send(Interrupt{cell}, rank);
  for (const int rank : {0, 1}) EXPECT_EQ(hub.expect<Done>(rank).status, CellStatus::interrupted);
  regroup();
  EXPECT_TRUE(hub.query(question::Hang(), 0).frames.value().empty()) << "idle";
}

TEST_F(TwoRanks, AreInterruptedInACollectiveAndKeepTheirState) {
  hub.run_cell("with_torch", "sums");
  const auto cell = hub.load("with_torch", "waits_for_one");
  hub.run(cell);
  ASSERT_TRUE(waits(0));
  for (const int rank : {0, 1}) hub.send(Interrupt{cell}, rank);
  for (const int rank : {0, 1}) EXPECT_EQ(hub.expect<Done>(rank).status, CellStatus::interrupted);
  regroup();
  const auto shown = hub.run_cell("with_torch", "shows_kept");
  EXPECT_EQ(hub.output(shown.cell), "3");
  EXPECT_EQ(hub.run_cell("with_torch", "sums").status, CellStatus::ok);
}

TEST_F(TwoRanks, GoOnAfterOneHasThrown) {
  hub.run_cell("with_torch", "sums");
  const auto cell = hub.load("with_torch", "throws_on_one");
  hub.run(cell);
  const auto thrown = hub.expect<Done>(1);
  EXPECT_EQ(thrown.status, CellStatus::error);
  ASSERT_TRUE(waits(0));
  hub.send(PeersDone{cell, {1}, CellStatus::error, thrown.collectives}, 0);
  EXPECT_EQ(hub.expect<Waiting>(0).missing, RankSet{1});
  hub.send(Abort{"rank 1 threw"}, 0);
  EXPECT_EQ(hub.expect<Done>(0).status, CellStatus::aborted);
  regroup();
  EXPECT_EQ(hub.run_cell("with_torch", "sums").status, CellStatus::ok);
}

TEST_F(TwoRanks, ReportCollectivesThatDoNotMatch) {
  const auto cell = hub.load("with_torch", "differs");
  hub.run(cell);
  const auto finding = hub.expect<FindingMessage>(0).finding;
  EXPECT_EQ(finding.inspector, "collectives");
  EXPECT_EQ(finding.where, "cell 7, line 19");
  for (const int rank : {0, 1}) EXPECT_NE(hub.expect<Done>(rank).status, CellStatus::ok);
  regroup();
  EXPECT_EQ(hub.run_cell("with_torch", "sums").status, CellStatus::ok);
}

TEST_F(TwoRanks, SurviveTheDeathOfOne) {
  const auto cell = hub.load("with_torch", "dies");
  hub.run(cell);
  EXPECT_EQ(hub.process(1).wait().signal, SIGKILL);
  hub.send(PeersDone{cell, {1}, CellStatus::dead, {}}, 0);
  hub.send(Abort{"rank 1 died"}, 0);
  const auto done = hub.expect<Done>(0);
  EXPECT_NE(done.status, CellStatus::ok);
  ASSERT_TRUE(done.error);
  EXPECT_FALSE(done.error->root_cause);
  hub.send(Regroup{1, RankSet{0}, {}, 30}, 0);
  EXPECT_TRUE(hub.expect<Regrouped>(0).ok);
}

TEST_F(TwoRanks, LeaveARegroupThatIsAbortedBeforeItBegins) {
  hub.run(hub.load("with_torch", "skips"));
  hub.expect<Done>(1);
  ASSERT_TRUE(waits(0));
  hub.send(Regroup{1, RankSet::all(2), {}, 30}, 0);  // to which rank 1 does not come
  hub.send(Abort{"rank 1 died"}, 0);
  EXPECT_EQ(hub.expect<Done>(0).status, CellStatus::aborted);
  const auto regrouped = hub.expect<Regrouped>(0);
  EXPECT_FALSE(regrouped.ok);
  EXPECT_THAT(regrouped.message, HasSubstr("aborted: rank 1 died"));
}

}  // namespace
}  // namespace lockstep::testing
