// Hangs of ranks that wait for one another in different collectives.
#include <gtest/gtest.h>

#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

TEST(Hang, TwoGroupsCrossed) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {0, 1});
  ranks.enters(0, "all_reduce", {.group = "group_1", .line = 4});
  ranks.enters(1, "all_reduce", {.group = "group_2", .line = 9});
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::other_collective);
  EXPECT_EQ(finding.ranks, (RankSet{0, 1}));
  EXPECT_TRUE(finding.reference_ranks.empty());
  EXPECT_TRUE(finding.message.starts_with(
      "rank 0 waits in all_reduce #1 of group_1 (cell 7, line 4) for rank 1, and rank 1 waits in all_reduce #1 of "
      "group_2 (cell 7, line 9) for rank 0: none of them can continue."));
}

TEST(Hang, TheMajorityIsRight) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {2, 3});
  for (int r : {0, 1, 2}) ranks.enters(r, "all_reduce");
  ranks.enters(3, "barrier", "group_1");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.ranks, RankSet{3});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 1, 2}));
  EXPECT_EQ(finding.op->group, "default");
}

TEST(Hang, ACircleOfThree) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {1, 2});
  ranks.add_group("group_3", {0, 2});
  ranks.enters(0, "barrier", "group_1");
  ranks.enters(1, "barrier", "group_2");
  ranks.enters(2, "barrier", "group_3");
  EXPECT_EQ(proven_hang(ranks).ranks, (RankSet{0, 1, 2}));
}

TEST(Hang, ARankThatReceivesFromItself) {
  MadeUp ranks(2);
  ranks.enters(1, "recv", {.root = 1});
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_NE(finding.message.find("for rank 1: none of them can continue. A rank can't receive from itself"),
            std::string::npos)
      << finding.message;
}

TEST(Hang, TwoCirclesAreTwoFindings) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {0, 1});
  ranks.add_group("group_3", {2, 3});
  ranks.add_group("group_4", {2, 3});
  for (int r : {0, 1, 2, 3}) ranks.enters(r, "barrier", "group_" + std::to_string(r + 1));
  const auto analysis = analyse_hang(ranks.picture);
  ASSERT_EQ(analysis.proven.size(), 2u);
  EXPECT_EQ(analysis.proven[0].finding.ranks, (RankSet{0, 1}));
  EXPECT_EQ(analysis.proven[1].finding.ranks, (RankSet{2, 3}));
  EXPECT_NE(analysis.proven[0].key, analysis.proven[1].key);
}

TEST(Hang, WhatOnlyLeadsToACircleFollowsFromIt) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {1, 2});
  ranks.add_group("group_2", {1, 2});
  ranks.add_group("group_3", {0, 1});
  ranks.add_group("group_4", {0, 3});
  ranks.enters(3, "barrier", "group_4");
  ranks.enters(0, "barrier", "group_3");
  ranks.enters(1, "barrier", "group_1");
  ranks.enters(2, "barrier", "group_2");
  EXPECT_EQ(proven_hang(ranks).ranks, (RankSet{1, 2}));
  EXPECT_EQ(analyse_hang(ranks.picture).proven[0].waiting, RankSet::all(4));
  const std::string message = proven_hang(ranks).message;
  EXPECT_NE(message.find("for rank 1: none of them can continue; because of that rank 0 waits in barrier #1 of group_3 "
                         "(cell 7, line 4) for rank 1; because of that rank 3 waits in barrier #1 of group_4 (cell 7, "
                         "line 4) for rank 0. All ranks"),
            std::string::npos)
      << message;
}

TEST(Hang, ACircleThroughCollectivesWithARoot) {
  for (const char* op : {"broadcast", "scatter", "gather", "reduce", "broadcast_object_list", "scatter_object_list"})
    for (const int root : {0, 1}) {
      SCOPED_TRACE(testing::Message() << op << " of rank " << root);
      MadeUp ranks(2);
      ranks.add_group("group_1", {0, 1});
      ranks.add_group("group_2", {0, 1});
      ranks.enters(0, op, {.group = "group_1", .root = root});
      ranks.enters(1, op, {.group = "group_2", .root = root});
      EXPECT_EQ(proven_hang(ranks).ranks, (RankSet{0, 1}));
    }
}

TEST(Hang, ACollectiveAgainstAReceive) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.enters(1, "recv", {.root = 0});
  EXPECT_EQ(proven_hang(ranks).ranks, (RankSet{0, 1}));
}

TEST(Hang, SeveralCollectivesUnderWayNoneOfWhichCanEnd) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.enters(0, "all_reduce", {.async = true});
  ranks.enters(0, "all_reduce", {.async = true});
  ranks.enters(1, "barrier", "group_1");
  EXPECT_EQ(analyse_hang(ranks.picture).proven.size(), 1u);
}

}  // namespace
}  // namespace lockstep::inspect
