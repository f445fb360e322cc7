// A rank that always comes last, and ranks that only seem to.
#include "inspectors/hang/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/inspectors/made_up_ranks.h"

namespace lockstep::inspect {
namespace {

/// `steps` collectives; a rank takes milliseconds(rank, step) to get to the next.
template <typename Milliseconds>
std::optional<Finding> after(int size, int steps, Milliseconds milliseconds) {
  MadeUp ranks(size);
  int64_t now = 0;
  for (int step = 0; step < steps; ++step) {
    std::vector<int64_t> arrivals;
    for (int r = 0; r < size; ++r) arrivals.push_back(now + milliseconds(r, step) * kMillisecond);
    now = *std::max_element(arrivals.begin(), arrivals.end()) + kMillisecond;
    for (int r = 0; r < size; ++r) {
      ranks.done(r, "all_reduce");
      ranks.at(r).recent.back().entered_ns = arrivals[static_cast<size_t>(r)];
      ranks.at(r).recent.back().done_ns = now;
    }
  }
  return find_straggler(times_of(ranks.picture));
}

TEST(Straggler, ARankThatTakesManyTimesAsLong) {
  const auto finding = after(3, 40, [](int rank, int) { return rank == 2 ? 60 : 10; });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->severity, Severity::note);
  EXPECT_EQ(finding->verdict, Verdict::straggler);
  EXPECT_EQ(finding->ranks, RankSet{2});
  EXPECT_EQ(finding->reference_ranks, (RankSet{0, 1}));
  EXPECT_THAT(finding->message,
              testing::HasSubstr("60.0 ms between collectives, ranks 0-1 10.0 ms, 6.0 times as long"));
}

TEST(Straggler, OfTwo) {
  EXPECT_EQ(after(2, 30, [](int rank, int) { return rank == 0 ? 30 : 10; })->ranks, RankSet{0});
}

TEST(Straggler, OfTwentyCollectives) {
  EXPECT_TRUE(after(2, 20, [](int rank, int) { return rank == 0 ? 30 : 10; }));
  EXPECT_FALSE(after(2, 19, [](int rank, int) { return rank == 0 ? 30 : 10; }));
}

TEST(Straggler, NotAfterAFewSteps) {
  EXPECT_FALSE(after(2, 15, [](int rank, int) { return rank == 0 ? 30 : 10; }));
}

TEST(Straggler, NotARankThatIsALittleSlower) {
  EXPECT_FALSE(after(3, 40, [](int rank, int) { return rank == 0 ? 15 : 10; }));
}

TEST(Straggler, NotWhereEachIsLateInTurn) {
  EXPECT_FALSE(after(3, 60, [](int rank, int step) { return step % 3 == rank ? 60 : 10; }));
}

TEST(Straggler, NotOneLongPause) {
  EXPECT_FALSE(after(2, 60, [](int rank, int step) { return rank == 0 && step == 30 ? 30'000 : 10; }));
}

}  // namespace
}  // namespace lockstep::inspect
