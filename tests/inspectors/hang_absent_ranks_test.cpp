// Hangs because of a rank that does not enter the collective any more: it has finished, thrown, died, destroyed the
// group, or runs something else.
#include <gmock/gmock.h>

#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Hang, ARankThatFinishedIsWaitedForInVain) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.done(r, "broadcast", {.root = 0, .line = 2});
  ranks.enters(0, "all_reduce");
  ranks.enters(2, "all_reduce");
  ranks.finishes(1);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::hang);
  EXPECT_EQ(finding.kind, FindingKind::finished);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_EQ(finding.op->name, "all_reduce");
  EXPECT_EQ(finding.op->seq, 2);
  EXPECT_EQ(finding.where, "cell 7, line 4");
  EXPECT_EQ(finding.message,
            "ranks 0,2 wait in all_reduce #2 (cell 7, line 4), and rank 1 has finished without entering it; its last "
            "call was broadcast #1 (cell 7, line 2)");
}

TEST(Hang, AnExceptionThatWasCaughtIsSaidWithTheHangThatFollows) {
  MadeUp ranks(2);
  for (int step = 0; step < 5; ++step) ranks.done(0, "all_reduce");
  for (int step = 0; step < 2; ++step) ranks.done(1, "all_reduce");
  const int64_t thrown = ranks.at(1).recent.back().entered_ns + 1;
  for (int step = 0; step < 3; ++step) {
    ranks.done(1, "all_reduce");
    ranks.at(1).recent.back().entered_ns = thrown + 1 + step;
  }
  ranks.enters(0, "all_reduce");
  ranks.at(1).caught.push_back({.type = "std::runtime_error", .where = "cell 7, line 2", .time_ns = thrown});
  ranks.finishes(1);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::finished);
  EXPECT_THAT(
      finding.message,
      HasSubstr("; rank 1 threw std::runtime_error (cell 7, line 2) after all_reduce #2 and caught it: if it skipped a "
                "call then, its calls since (#3 to #5) matched calls of other steps on the other ranks"));
  // An exception that was not caught is reported as before.
  ranks.at(1).how = CellStatus::error;
  EXPECT_THAT(proven_hang(ranks).message, Not(HasSubstr("caught")));
}

TEST(Hang, ARankThatThrewIsTheCause) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.throws(1);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::threw);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_THAT(finding.message, HasSubstr("rank 1 threw std::runtime_error (cell 7, line 3)"));
}

TEST(Hang, ADeadRank) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.dies(1);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::dead);
  EXPECT_EQ(finding.kind, FindingKind::died);
  EXPECT_THAT(finding.message, HasSubstr("rank 1 died of SIGKILL"));
}

TEST(Hang, ARankThatDoesNotRunTheCell) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.at(1).place = RankPicture::Place::elsewhere;
  EXPECT_EQ(proven_hang(ranks).kind, FindingKind::not_in_cell);
}

TEST(Hang, SeveralThatHaveGoneInSeveralWays) {
  MadeUp ranks(4);
  ranks.enters(0, "barrier");
  ranks.throws(1);
  ranks.finishes(2);
  ranks.finishes(3);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.ranks, (RankSet{1, 2, 3}));
  EXPECT_THAT(finding.message, HasSubstr("rank 1 threw std::runtime_error (cell 7, line 3), ranks 2-3 have finished"));
}

TEST(Hang, WhoWaitsForOneThatWaitsInVainIsAConsequence) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {1, 2});
  ranks.finishes(0);
  ranks.enters(1, "all_reduce", "group_1");
  ranks.enters(2, "barrier", "group_2");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.ranks, RankSet{0});
  EXPECT_EQ(finding.reference_ranks, (RankSet{1, 2}));
  EXPECT_THAT(finding.message, HasSubstr("rank 1 waits in all_reduce #1 of group_1"));
  EXPECT_THAT(finding.message,
              HasSubstr("because of that rank 2 waits in barrier #1 of group_2 (cell 7, line 4) for rank 1"));
}

TEST(Hang, AGroupThatWasDestroyedElsewhere) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.destroys(1, "group_1");
  ranks.enters(0, "barrier", "group_1");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::left_group);
  EXPECT_THAT(finding.message, HasSubstr("rank 1 has destroyed the group"));
}

TEST(Hang, ARankOutsideTheGroupIsNamed) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 2});
  ranks.enters(0, "all_reduce", "group_1");
  ranks.throws(1, "lockstep::dist::ArgumentError", "dist::all_reduce: rank 1 is not in group group_1 (ranks 0,2). …");
  ranks.finishes(2);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::outside_group);
  EXPECT_EQ(finding.ranks, (RankSet{1, 2}));
  EXPECT_THAT(finding.message,
              HasSubstr("rank 1, which is not in group_1 (ranks 0,2), tried to enter it and threw (cell 7, line 3)"));
}

TEST(Hang, WhatARankSaysItselfIsEnoughWithoutALog) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.at(r).has_log = false, ranks.at(r).groups.clear();
  RankWait wait;
  wait.call.group = "default";
  wait.call.op = "all_reduce";
  wait.call.seq = 1;
  wait.where = "cell 7, line 1";
  wait.missing = RankSet{1};
  ranks.at(0).waits = {wait};
  ranks.at(2).waits = {wait};
  ranks.finishes(1);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_TRUE(finding.message.starts_with("ranks 0,2 wait in all_reduce #1 (cell 7, line 1), and rank 1"));
}

TEST(Hang, WhoHasComeSinceARankSaidThatItWaitsIsNotMissing) {
  MadeUp ranks(4);
  RankWait wait;
  wait.call.group = "default";
  wait.call.op = "barrier";
  wait.call.seq = 1;
  wait.where = "cell 7, line 1";
  for (int r : {0, 1, 2, 3}) ranks.at(r).has_log = false, ranks.at(r).groups.clear();
  for (int r : {0, 1, 2}) {
    wait.missing = RankSet::all(4) - RankSet{r};
    ranks.at(r).waits = {wait};
  }
  ranks.finishes(3);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.ranks, RankSet{3});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1, 2}));
  // Where the log does not name the rank that has not come, nothing is known of the wait.
  MadeUp unnamed(3);
  for (int r : {0, 1, 2}) unnamed.at(r).has_log = false, unnamed.at(r).groups.clear();
  for (int r : {0, 1}) {
    wait.missing = RankSet{1 - r};
    unnamed.at(r).waits = {wait};
  }
  unnamed.finishes(2);
  expect_no_hang(unnamed);
}

TEST(Hang, ANewGroupThatOneMemberDoesNotMake) {
  MadeUp ranks(3);
  ranks.enters(0, "new_group", {.shape = {0, 1}});
  ranks.finishes(1);
  EXPECT_EQ(proven_hang(ranks).ranks, RankSet{1});
  MadeUp others(3);
  others.enters(0, "new_group", {.shape = {0, 1}});
  others.finishes(2);  // only counts along: nobody waits for it
  expect_no_hang(others);
}

TEST(Hang, AGatherOfObjectsNeedsEveryRank) {
  MadeUp ranks(3);
  ranks.enters(1, "gather_object", {.root = 0});
  ranks.enters(2, "gather_object", {.root = 0});
  ranks.enters(0, "gather_object", {.root = 0});
  ranks.at(2).waits.clear();
  --ranks.group(2, "default").entered;
  ranks.finishes(2);
  EXPECT_EQ(proven_hang(ranks).reference_ranks, (RankSet{0, 1}));
}

}  // namespace
}  // namespace lockstep::inspect
