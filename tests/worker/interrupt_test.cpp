// Rule 4: control never waits for user code; interrupts end loops and sleeps, and keep state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/fake_hub.h"

namespace lockstep::testing {
namespace {

using namespace protocol;
using ::testing::HasSubstr;

class Interrupts : public ::testing::TestWithParam<const char*> {};

TEST_P(Interrupts, EndTheCellAndNotTheRank) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("loops", GetParam());
  hub.run(cell);
  hub.send(Interrupt{cell});
  const auto done = hub.expect<Done>();
  EXPECT_EQ(done.status, CellStatus::interrupted);
  EXPECT_EQ(done.steps_done, 0);
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok) << "and the next cell is not interrupted";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Interrupts,
                         ::testing::Values("spin", "merciless", "sleep_for", "sleep_until", "posix_sleeps", "unwinds",
                                           "rethrows"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Interrupt, ThatComesWhileTheCellRunsUnwindsIt) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("loops", "unwinds");
  hub.run(cell);
  ASSERT_TRUE(eventually([&] { return hub.query(question::Status()).state == RankState::running; }));
  hub.send(Interrupt{cell});
  const auto done = hub.expect<Done>();
  EXPECT_EQ(done.status, CellStatus::interrupted);
  ASSERT_TRUE(done.error);
  EXPECT_THAT(done.error->where, HasSubstr("cell 7, line"));
  EXPECT_EQ(hub.output(cell), "unwound ");
}

TEST(Interrupt, WaitsWhereAnExceptionWouldEndTheProcess) {
  FakeHub hub;
  hub.start_ready();
  for (const auto& [name, printed] : {std::pair{"guarded", "begun survived "}, {"destructor", "begun destroyed "}}) {
    const auto cell = hub.load("loops", name);
    hub.run(cell);
    ASSERT_TRUE(eventually([&, cell = cell] { return hub.output(cell) == "begun "; }));
    hub.send(Interrupt{cell});
    EXPECT_EQ(hub.expect<Done>().status, CellStatus::interrupted);
    EXPECT_EQ(hub.output(cell), printed) << "neither skipped nor ended by std::terminate";
  }
}

TEST(Interrupt, OfAnotherCellDoesNothing) {
  FakeHub hub;
  hub.start_ready();
  hub.send(Interrupt{77});
  const auto cell = hub.load("output", "nothing");
  hub.run(cell);
  EXPECT_EQ(hub.expect<Done>().status, CellStatus::ok);
  hub.send(Interrupt{cell});
  EXPECT_EQ(hub.run_cell("output", "nothing").status, CellStatus::ok);
}

TEST(Control, IsAnsweredWhileACellLoops) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("loops", "stubborn");
  hub.run(cell);
  ASSERT_TRUE(eventually([&] { return hub.query(question::Status()).state == RankState::running; }));
  const auto status = hub.query(question::Status());
  EXPECT_EQ(status.cell, cell);
  EXPECT_EQ(status.device, "cpu");
  EXPECT_GT(status.rss_bytes.value(), 1 << 20);
  EXPECT_GE(status.threads, 2);
  const auto stack = hub.query(question::Stack());
  ASSERT_EQ(stack.error, "");
  EXPECT_EQ(stack.stack.at(0), "cell 7, line 3");
  EXPECT_EQ(hub.query(question::Collectives{5}).error, "");
  EXPECT_NE(hub.query(Unreadable{"horoscope"}).error, "");
}

TEST(Control, StackOfASleepingCellDoesNotWakeIt) {
  FakeHub hub;
  hub.start_ready();
  const auto cell = hub.load("loops", "sleep_for");
  hub.run(cell);
  ASSERT_TRUE(eventually([&] { return hub.query(question::Status()).state == RankState::running; }));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(hub.query(question::Stack()).stack.empty());
  EXPECT_EQ(hub.query(question::Status()).state, RankState::running);
  EXPECT_FALSE(hub.has<Done>());
}

}  // namespace
}  // namespace lockstep::testing
