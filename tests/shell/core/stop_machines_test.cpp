#include "shell/cells/stop_machines.h"

#include <gtest/gtest.h>

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

/// Presses of Ctrl-C, each as long after the one before as it says.
class Presses {
 public:
  StopStep after(milliseconds pause) { return stop.requested(now_ += pause); }
  UserStop stop;

 private:
  UserStop::Clock::time_point now_{};
};

TEST(UserStop, InterruptsThenOffersThenEnds) {
  Presses press;
  EXPECT_EQ(press.stop.phase(), UserStop::Phase::none);
  EXPECT_EQ(press.after(milliseconds(0)), StopStep::interrupt);
  EXPECT_EQ(press.stop.phase(), UserStop::Phase::interrupted);
  EXPECT_EQ(press.after(UserStop::kRepeat), StopStep::offer);
  EXPECT_EQ(press.stop.phase(), UserStop::Phase::offered);
  EXPECT_EQ(press.after(UserStop::kReading), StopStep::end);
  EXPECT_EQ(press.stop.phase(), UserStop::Phase::ended);
  EXPECT_EQ(press.after(UserStop::kRepeat), StopStep::end) << "ranks that did not die of the first";
}

TEST(UserStop, AKeyThatIsHeldDownInterruptsAndDoesNotEnd) {
  Presses press;
  EXPECT_EQ(press.after(milliseconds(0)), StopStep::interrupt);
  for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(press.after(milliseconds(33)), StopStep::nothing);
  EXPECT_EQ(press.after(milliseconds(500)), StopStep::offer);
  for (int repeat = 0; repeat < 100; ++repeat) ASSERT_EQ(press.after(milliseconds(33)), StopStep::nothing);
  EXPECT_EQ(press.after(milliseconds(500)), StopStep::end);
}

TEST(UserStop, AnOfferStandsForAWhileBeforeItCanBeTaken) {
  Presses press;
  press.after(milliseconds(0));
  EXPECT_EQ(press.after(milliseconds(300)), StopStep::offer);
  EXPECT_EQ(press.after(milliseconds(300)), StopStep::nothing);
  EXPECT_EQ(press.after(milliseconds(300)), StopStep::nothing);
  EXPECT_EQ(press.after(milliseconds(400)), StopStep::end);
}

TEST(UserStop, RemindsOnlyBetweenTheInterruptAndTheOffer) {
  Presses press;
  EXPECT_EQ(press.stop.patience_is_over(), StopStep::nothing);
  press.after(milliseconds(0));
  EXPECT_EQ(press.stop.patience_is_over(), StopStep::remind);
  EXPECT_EQ(press.stop.phase(), UserStop::Phase::interrupted) << "a reminder is no step";
  press.after(milliseconds(2000));
  EXPECT_EQ(press.stop.patience_is_over(), StopStep::nothing);
  press.after(milliseconds(2000));
  EXPECT_EQ(press.stop.patience_is_over(), StopStep::nothing);
}

TEST(UserStop, StartsAgainWithEachCell) {
  Presses press;
  for (int i = 0; i < 3; ++i) press.after(milliseconds(2000));
  press.stop.begin();
  EXPECT_EQ(press.stop.phase(), UserStop::Phase::none);
  EXPECT_EQ(press.after(milliseconds(1)), StopStep::interrupt);
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
