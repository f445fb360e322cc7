// Ranks without progress within a limit, where no hang is proven.
#include <gmock/gmock.h>

#include "inspectors/hang/state.h"
#include "tests/inspectors/made_up_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;

TEST(Stalled, NamesTheRankThatSleepsAndWhere) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  ranks.at(1).activity = FindingKind::sleeping;
  const auto finding = stalled(ranks.picture, 2);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::sleeping);
  EXPECT_EQ(finding->ranks, RankSet{1});
  EXPECT_EQ(finding->reference_ranks, RankSet{0});
  EXPECT_EQ(finding->message,
            "no progress for 2 s: rank 0: waits 3.0 s in all_reduce #1 (cell 7, line 4) for rank 1; rank 1: sleeps in "
            "compute() at cell 7, line 21");
}

TEST(Stalled, SaysOnceWhatSeveralRanksDo) {
  MadeUp ranks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(2, "all_reduce");
  EXPECT_THAT(stalled(ranks.picture, 1)->message,
              HasSubstr("ranks 0,2: wait 3.0 s in all_reduce #1 (cell 7, line 4) for rank 1; "));
}

TEST(Stalled, TellsALoopALockAndADataLoaderApart) {
  for (const FindingKind activity : {FindingKind::computing, FindingKind::lock, FindingKind::loading_data}) {
    MadeUp ranks(3);
    ranks.enters(0, "all_reduce");
    ranks.enters(2, "all_reduce");
    ranks.at(1).activity = activity;
    EXPECT_EQ(stalled(ranks.picture, 1)->kind, activity);
  }
}

TEST(Stalled, RanksThatComputeAndThatNobodyWaitsForAreNone) {
  MadeUp ranks(2);
  EXPECT_FALSE(stalled(ranks.picture, 1));
  ranks.at(0).activity = FindingKind::lock;
  EXPECT_FALSE(stalled(ranks.picture, 1)) << "rank 1 computes, and may hold the lock";
  ranks.at(1).activity = FindingKind::lock;
  EXPECT_EQ(stalled(ranks.picture, 1)->ranks, (RankSet{0, 1}));
}

TEST(Stalled, NamesTheRankThatFreedRanksHaveWaitedFor) {
  MadeUp ranks(3);
  ranks.throws(1);
  ranks.enters(0, "all_reduce");
  ranks.breaks_off(0);
  ranks.at(0).how = CellStatus::aborted;  // the session freed it
  const auto finding = stalled(ranks.picture, 1);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, RankSet{2});
  EXPECT_EQ(finding->reference_ranks, RankSet{0});
  EXPECT_EQ(finding->kind, FindingKind::computing);
  EXPECT_EQ(
      finding->message,
      "no progress for 1 s: rank 2: computes in compute() at cell 7, line 22; rank 0 waited in all_reduce #1 (cell "
      "7, line 4) before it left the cell");
  ranks.enters(2, "all_reduce", {.async = true, .waits = false});
  EXPECT_FALSE(stalled(ranks.picture, 1)) << "it has come to that collective";
}

}  // namespace
}  // namespace lockstep::inspect
