// The phases of a step and the counter of steps by themselves: no module, no ranks.
#include "ddp/step/step_machine.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ddp/step/step_counter.h"
#include "protocol/error.h"

namespace lockstep::test {
namespace {

using ddp::detail::Event;
using ddp::detail::next_phase;
using ddp::detail::Phase;
using ddp::detail::StepCounter;
using ddp::detail::StepMachine;
using enum ddp::detail::Event;
using enum ddp::detail::Phase;
using ::testing::HasSubstr;

constexpr Phase kPhases[] = {kIdle, kLocal, kNotFound, kAnnounced, kEntered, kBackward, kPartial};
constexpr Event kEvents[] = {kForwardLocal, kForwardUnsearchable, kForwardReduced, kOutputs, kGradient, kLeftOpen,
                             kReduced,      kReducedStatic,       kReset};

TEST(StepMachine, HasTheTransitionsOfItsDrawingAndNoOthers) {
  std::map<std::pair<Phase, Event>, Phase> drawn;
  for (const Phase phase : kPhases) {
    drawn[{phase, kForwardReduced}] = kAnnounced;
    drawn[{phase, kForwardLocal}] = kLocal;
    drawn[{phase, kForwardUnsearchable}] = kNotFound;
    drawn[{phase, kReset}] = kIdle;
    drawn[{phase, kOutputs}] = phase;  // but for the two below
  }
  drawn[{kAnnounced, kOutputs}] = kEntered;
  drawn[{kPartial, kOutputs}] = kBackward;
  drawn[{kLocal, kGradient}] = kLocal;
  for (const Phase phase : {kAnnounced, kEntered, kBackward, kPartial}) drawn[{phase, kGradient}] = kBackward;
  drawn[{kEntered, kLeftOpen}] = kAnnounced;
  drawn[{kBackward, kLeftOpen}] = kPartial;
  drawn[{kBackward, kReduced}] = kIdle;
  drawn[{kBackward, kReducedStatic}] = kAnnounced;
  for (const Phase phase : kPhases) {
    for (const Event event : kEvents) {
      const auto found = drawn.find({phase, event});
      const auto expected = found == drawn.end() ? std::nullopt : std::optional(found->second);
      EXPECT_EQ(next_phase(phase, event), expected)
          << "phase " << static_cast<int>(phase) << ", event " << static_cast<int>(event);
    }
  }
}

Phase after(const std::vector<Event>& events) {
  StepMachine machine;
  for (const Event event : events) machine.transition(event);
  return machine.phase();
}

TEST(StepMachine, GoesThroughAStep) {
  EXPECT_EQ(after({}), kIdle);
  EXPECT_EQ(after({kForwardReduced, kGradient, kGradient, kReduced}), kIdle);
  EXPECT_EQ(after({kForwardLocal, kGradient, kForwardReduced, kGradient}), kBackward) << "accumulation";
  EXPECT_EQ(after({kForwardReduced, kGradient, kLeftOpen, kGradient, kReduced}), kIdle) << "checkpointing";
  EXPECT_EQ(after({kForwardReduced, kOutputs, kLeftOpen, kOutputs, kGradient, kReducedStatic}), kAnnounced)
      << "a penalty on gradients, with a static graph";
  EXPECT_EQ(after({kForwardReduced, kGradient, kReset}), kIdle) << "a step that failed";
}

TEST(StepMachine, RefusesWhatItsDrawingDoesNotHave) {
  StepMachine machine;
  EXPECT_FALSE(machine.accepts(kGradient));
  try {
    machine.transition(kGradient);
    ADD_FAILURE() << "a gradient that no forward announced";
  } catch (const ddp::StateError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a gradient came while the step has no forward"));
    EXPECT_THAT(error.what(), HasSubstr("net.reset()"));
  }
  EXPECT_EQ(machine.phase(), kIdle);
  EXPECT_THROW(machine.transition(kReduced), ddp::StateError);
  machine.transition(kForwardUnsearchable);
  EXPECT_THROW(machine.transition(kGradient), ddp::StateError);
}

TEST(StepMachine, StartsABackwardOnceFromManyThreads) {
  StepMachine machine;
  machine.transition(kForwardReduced);
  std::atomic<int> started = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      if (machine.transition(kGradient).starts_backward()) ++started;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(started, 1);
  machine.transition(kLeftOpen);
  EXPECT_TRUE(machine.transition(kGradient).starts_backward());
}

TEST(StepCounter, ReportsEachStepOnce) {
  StepCounter counter;
  int reported = 0;
  auto listener = counter.listen([&] { ++reported; });
  counter.report();
  EXPECT_EQ(reported, 0) << "no step yet";
  counter.add_step();
  counter.report();
  counter.report();
  EXPECT_EQ(reported, 1);
  counter.set(0);
  counter.add_step();
  counter.report();
  EXPECT_EQ(reported, 2) << "a step that has its number again";
  counter.add_step();
  counter.drop_unreported_step();
  counter.report();
  EXPECT_EQ(reported, 2) << "a step that failed";
  listener.reset();
  counter.add_step();
  counter.report();
  EXPECT_EQ(reported, 2);
}

TEST(StepCounter, TakesTheLeastCountOfAnyRankAfterAFailure) {
  StepCounter counter;
  int asked = 0;
  const auto least = [&](int64_t mine) {
    ++asked;
    return mine - 1;
  };
  counter.add_step();
  counter.add_step();
  counter.agree(least);
  EXPECT_EQ(asked, 0) << "a collective that nobody else joins";
  counter.drop_unreported_step();
  int reported = 0;
  const auto listener = counter.listen([&] { ++reported; });
  counter.add_step();
  counter.agree(least);
  counter.agree(least);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(counter.count(), 2);
  counter.report();
  EXPECT_EQ(reported, 1);
}

}  // namespace
}  // namespace lockstep::test
