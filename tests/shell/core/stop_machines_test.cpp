#include "shell/cells/stop_machines.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

TEST(UserStop, InterruptsThenOffersThenEnds) {
  UserStop stop;
  EXPECT_EQ(stop.phase(), UserStop::Phase::none);
  EXPECT_EQ(stop.requested(), StopStep::interrupt);
  EXPECT_EQ(stop.phase(), UserStop::Phase::interrupted);
  EXPECT_EQ(stop.requested(), StopStep::offer);
  EXPECT_EQ(stop.phase(), UserStop::Phase::offered);
  EXPECT_EQ(stop.requested(), StopStep::end);
  EXPECT_EQ(stop.phase(), UserStop::Phase::ended);
  EXPECT_EQ(stop.requested(), StopStep::end) << "ranks that did not die of the first";
}

TEST(UserStop, RemindsOnlyBetweenTheInterruptAndTheOffer) {
  UserStop stop;
  EXPECT_EQ(stop.patience_is_over(), StopStep::nothing);
  stop.requested();
  EXPECT_EQ(stop.patience_is_over(), StopStep::remind);
  EXPECT_EQ(stop.phase(), UserStop::Phase::interrupted) << "a reminder is no step";
  stop.requested();
  EXPECT_EQ(stop.patience_is_over(), StopStep::nothing);
  stop.requested();
  EXPECT_EQ(stop.patience_is_over(), StopStep::nothing);
}

TEST(UserStop, StartsAgainWithEachCell) {
  UserStop stop;
  for (int press = 0; press < 3; ++press) stop.requested();
  stop.begin();
  EXPECT_EQ(stop.phase(), UserStop::Phase::none);
  EXPECT_EQ(stop.requested(), StopStep::interrupt);
}

TEST(LimitStop, InterruptsThenAbortsThenEnds) {
  LimitStop stop;
  EXPECT_FALSE(stop.patience());
  EXPECT_EQ(stop.time_is_over(), StopStep::interrupt);
  EXPECT_EQ(stop.patience(), milliseconds(2000));
  EXPECT_EQ(stop.time_is_over(), StopStep::abort);
  EXPECT_EQ(stop.patience(), milliseconds(3000));
  EXPECT_EQ(stop.time_is_over(), StopStep::end);
  EXPECT_EQ(stop.phase(), LimitStop::Phase::ended);
  EXPECT_FALSE(stop.patience()) << "nothing comes after the end";
}

TEST(LimitStop, EndsNextWhereOthersHaveInterruptedAndAborted) {
  LimitStop stop;
  stop.skip_to_end();
  EXPECT_EQ(stop.patience(), milliseconds(3000));
  EXPECT_EQ(stop.time_is_over(), StopStep::end);
  stop.begin();
  EXPECT_EQ(stop.time_is_over(), StopStep::interrupt);
}

}  // namespace
}  // namespace lockstep::shell
