// Who notices that a collective lasts, and that nobody looks while none is entered. Time is an argument.
#include "collectives/log/long_waits.h"

#include <gtest/gtest.h>

#include "collectives/log/collective_log.h"

namespace lockstep::dist {
namespace {

constexpr int64_t kLimit = 100'000'000;

class LongWaitsTest : public testing::Test {
 protected:
  LongWaitsTest() {
    group_ = log_.add_group("default", {0, 1}, 0, 0);
    log_.watch_long_waits(kLimit, [this] { ++woken_; });
  }

  uint64_t enter() { return log_.begin(group_, ++seq_, {.op = CollectiveOp::barrier}); }
  void leave(uint64_t entry) { log_.finish(entry, log_layout::EntryState::done); }
  LongWaits::Look look(int64_t later = 0) { return log_.long_waits()->look(monotonic_ns() + later); }

  CollectiveLog log_{"", 0, 2};
  uint32_t group_ = 0;
  int64_t seq_ = 0;
  int woken_ = 0;
};

TEST_F(LongWaitsTest, TellsEachWaitOnce) {
  const uint64_t first = enter();
  EXPECT_EQ(woken_, 1);
  auto seen = look();
  EXPECT_TRUE(seen.waits.empty());
  EXPECT_TRUE(seen.next_ns);
  seen = look(kLimit);
  ASSERT_EQ(seen.waits.size(), 1u);
  EXPECT_EQ(seen.waits[0].entry, first);
  EXPECT_TRUE(look(2 * kLimit).waits.empty());
  leave(first);
  const uint64_t second = enter();
  const auto again = look(3 * kLimit);
  ASSERT_EQ(again.waits.size(), 1u);
  EXPECT_EQ(again.waits[0].entry, second);
}

TEST_F(LongWaitsTest, AShortOneIsNotTold) {
  leave(enter());
  EXPECT_TRUE(look(10 * kLimit).waits.empty());
}

TEST_F(LongWaitsTest, NobodyLooksWhileNoneIsEntered) {
  leave(enter());
  EXPECT_EQ(woken_, 1);
  EXPECT_TRUE(look().next_ns) << "another may follow";
  leave(enter());
  EXPECT_EQ(woken_, 1) << "somebody looks already";
  EXPECT_TRUE(look().next_ns);
  EXPECT_FALSE(look().next_ns) << "none has come since";
  leave(enter());
  EXPECT_EQ(woken_, 2);
}

TEST_F(LongWaitsTest, NorWhileOneThatWasToldGoesOn) {
  enter();
  (void)look(kLimit);
  EXPECT_FALSE(look(2 * kLimit).next_ns);
  leave(enter());
  EXPECT_EQ(woken_, 2);
}

TEST_F(LongWaitsTest, OneBelowManyThatEndIsFound) {
  const uint64_t stuck = enter();
  for (int i = 0; i < 1000; ++i) leave(enter());
  const auto seen = look(kLimit);
  ASSERT_EQ(seen.waits.size(), 1u);
  EXPECT_EQ(seen.waits[0].entry, stuck);
}

}  // namespace
}  // namespace lockstep::dist
