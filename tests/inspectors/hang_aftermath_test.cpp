// Consequences of a hang: ranks that left their collective because another rank broke it.
#include <gmock/gmock.h>

#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;

TEST(Aftermath, OfADeath) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.done(r, "barrier");
  for (int r : {0, 2}) ranks.enters(r, "all_reduce"), ranks.breaks_off(r);
  ranks.dies(1);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::dead);
  EXPECT_EQ(finding.kind, FindingKind::died);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_EQ(finding.op->seq, 2);
  EXPECT_EQ(finding.where, "cell 7, line 4");
  EXPECT_EQ(finding.message, "ranks 0,2 waited in all_reduce #2 (cell 7, line 4), and rank 1 died of SIGKILL");
}

TEST(Aftermath, OfADeathInTheCollectiveItself) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.enters(r, "broadcast", {.root = 2});
  for (int r : {0, 2}) ranks.breaks_off(r);
  ranks.dies(1);  // not the root: data may have had to come through it
  EXPECT_EQ(proven_hang(ranks).ranks, RankSet{1});
}

TEST(Aftermath, WhoClosedTheGroupIsTheCause) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  for (int r : {0, 1}) ranks.done(r, "all_reduce", {.group = "group_1"});
  ranks.enters(0, "all_reduce", "group_1");
  ranks.breaks_off(0);
  ranks.destroys(1, "group_1");
  ranks.enters(1, "barrier");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::left_group);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, RankSet{0});
  EXPECT_EQ(finding.op->name, "all_reduce");
  EXPECT_THAT(finding.message, HasSubstr("rank 0 waited in all_reduce #2 of group_1 (cell 7, line 4), and rank 1 has "
                                         "destroyed the group; because of that rank 1 waits in barrier #1"));
}

TEST(Aftermath, WhoClosedTheGroupAndFinishedIsTheCause) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.enters(0, "all_reduce", "group_1");
  ranks.breaks_off(0);
  ranks.destroys(1, "group_1");
  ranks.finishes(1);
  EXPECT_EQ(proven_hang(ranks).kind, FindingKind::left_group);
}

TEST(Aftermath, WhoWaitsForOneThatWasBrokenOffIsAConsequence) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {0, 2});
  ranks.add_group("group_3", {2, 3});
  ranks.enters(0, "all_reduce", "group_1");
  ranks.breaks_off(0);
  ranks.dies(1);
  ranks.enters(2, "recv", {.group = "group_2", .root = 0});
  ranks.breaks_off(2);  // rank 0 shut its connections when it failed
  ranks.enters(3, "barrier", "group_3");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::dead);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2, 3}));
}

TEST(Aftermath, WhoFailedInTheCollectiveIsTheCause) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 2});
  for (int r : {0, 1}) ranks.enters(r, "all_reduce"), ranks.breaks_off(r);
  ranks.at(1).consequence = false;  // the transport refused what it gave
  ranks.at(1).error_type = "lockstep::dist::Error";
  ranks.enters(2, "barrier", "group_1");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::threw);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
}

TEST(Aftermath, ABrokenConnectionThatNobodyExplainsIsThatRanks) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {1, 2});
  for (int r : {0, 1}) ranks.enters(r, "all_reduce"), ranks.breaks_off(r);
  ranks.enters(2, "barrier", "group_1");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::threw);
  EXPECT_EQ(finding.ranks, RankSet{1});
}

TEST(Aftermath, WhoFinishedIsNotBlamedForWhatAnotherBroke) {
  MadeUp ranks(3);
  ranks.done(2, "all_reduce");
  ranks.finishes(2);
  ranks.enters(0, "all_reduce");
  ranks.breaks_off(0);
  ranks.dies(1);
  EXPECT_EQ(proven_hang(ranks).ranks, RankSet{1});
}

TEST(Aftermath, OfCallsThatDidNotMatchIsNoFaultOfItsOwn) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 2});
  ranks.throws(0, "lockstep::dist::CollectiveMismatch");
  ranks.throws(1, "lockstep::dist::CollectiveMismatch");
  ranks.enters(2, "barrier", "group_1");
  const auto analysis = analyse_hang(ranks.picture);
  ASSERT_EQ(analysis.proven.size(), 1u) << "it waits for what never comes";
  EXPECT_TRUE(analysis.proven[0].consequence);
  MadeUp others(2);
  others.throws(1);
  others.enters(0, "barrier");
  EXPECT_FALSE(analyse_hang(others.picture).proven.at(0).consequence);
}

}  // namespace
}  // namespace lockstep::inspect
