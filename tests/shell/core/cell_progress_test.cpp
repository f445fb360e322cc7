// Loops of several ranks as rows: what is put together, and when a row ends.
#include "shell/cells/cell_progress.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

struct CellProgressTest : testing::Test {
  EventLoop loop;
  std::vector<ProgressEvent> events;
  std::vector<std::pair<int, std::string>> marks;
  CellProgress rows{loop, [this](Event event) { events.push_back(std::get<ProgressEvent>(event)); },
                    [this](int rank, int64_t, std::string mark) { marks.emplace_back(rank, mark); }};

  void report(int rank, int64_t done, LoopState state = LoopState::running, const std::string& name = "4:1#0",
              const std::string& parent = "") {
    rows.report(rank, 7,
                {.cell = 3,
                 .loop = name,
                 .parent = parent,
                 .label = "epoch",
                 .line = 4,
                 .done = done,
                 .total = 10,
                 .elapsed_s = 1,
                 .state = state});
  }
  void gather() {
    const size_t before = events.size();
    loop.run_until([&] { return events.size() > before; });
  }
};

TEST_F(CellProgressTest, WhatRanksReportTogetherIsOneEvent) {
  report(0, 3);
  report(1, 5);
  EXPECT_TRUE(events.empty());
  gather();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].cell, 7);
  EXPECT_EQ(events[0].ranks, (RankSet{0, 1}));
  EXPECT_EQ(events[0].done.at(1), 5);
  EXPECT_EQ(events[0].total.at(0), 10);
  EXPECT_EQ(events[0].state, LoopState::running);
}

TEST_F(CellProgressTest, ALoopIsOverWhenItsLastRankHasLeftItAndTheOutputIsOut) {
  report(0, 3);
  report(1, 3);
  gather();
  report(0, 10, LoopState::completed);
  ASSERT_EQ(marks.size(), 1u);
  rows.marked({0}, marks[0].second);
  EXPECT_EQ(events.size(), 1u) << "rank 1 is still in it";
  report(1, 10, LoopState::completed);
  EXPECT_EQ(events.size(), 1u) << "what it wrote before is not out";
  rows.marked({1}, marks[0].second);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].state, LoopState::completed);
  EXPECT_EQ(events[1].loop, events[0].loop);
}

TEST_F(CellProgressTest, ARankThatLeftItsCellHasStopped) {
  report(0, 3);
  report(1, 4);
  gather();
  report(0, 10, LoopState::completed);
  rows.left(1);
  rows.marked({0}, marks[0].second);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].state, LoopState::stopped);
  EXPECT_EQ(events[1].done.at(1), 4);
}

TEST_F(CellProgressTest, TheEndOfTheCellEndsItsLoopsInnerOnesFirst) {
  report(0, 3);
  report(0, 1, LoopState::running, "4:1#0@3/5:1#0", "4:1#0");
  gather();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].parent, events[0].loop);
  rows.cell_is_over(2);
  EXPECT_EQ(events.size(), 2u);
  rows.cell_is_over(3);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].loop, events[1].loop);
  EXPECT_EQ(events[2].state, LoopState::stopped);
  EXPECT_EQ(events[3].loop, events[0].loop);
}

TEST_F(CellProgressTest, PassesOfALoopAreRowsOfTheirOwn) {
  report(0, 10, LoopState::completed);
  report(0, 1, LoopState::running, "4:1#1");
  report(1, 9);
  gather();
  EXPECT_EQ(events.size(), 2u);
  EXPECT_NE(events[0].loop, events[1].loop);
}

}  // namespace
}  // namespace lockstep::shell
