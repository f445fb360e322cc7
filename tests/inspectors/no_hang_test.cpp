// Ranks that wait and are in no hang: the collective may still end.
#include <gtest/gtest.h>

#include "inspectors/hang/needs.h"
#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

TEST(NoHang, ARankThatComputesBeforeItJoins) {
  MadeUp ranks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "all_reduce");
  expect_no_hang(ranks);
  EXPECT_EQ(waited_for(ranks.picture, 0), RankSet{2});
}

TEST(NoHang, ALongCollectiveThatAllHaveEntered) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.enters(r, "all_reduce");
  expect_no_hang(ranks);
  EXPECT_TRUE(waited_for(ranks.picture, 0).empty());
}

TEST(NoHang, ACircleWhoseRanksStillCompute) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.enters(0, "all_reduce", {.async = true, .waits = false});
  ranks.enters(1, "all_reduce", "group_1");
  expect_no_hang(ranks);
  EXPECT_TRUE(analyse_hang(ranks.picture).suspicious) << "it may close";
}

TEST(NoHang, ARankWithACollectiveThatMayEnd) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {0, 2});
  ranks.enters(0, "all_reduce", {.group = "group_1", .async = true});
  ranks.enters(0, "all_reduce", {.group = "group_2", .async = true});  // rank 2 computes and may come
  ranks.enters(1, "barrier");
  expect_no_hang(ranks);
}

TEST(NoHang, ARankWhoseOtherThreadMayCome) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.done(1, "barrier", {.group = "group_1"});
  ranks.done(0, "barrier", {.group = "group_1"});
  ranks.at(1).recent.back().thread = 5;
  ranks.enters(0, "all_reduce", "group_1");
  ranks.enters(1, "all_reduce");
  ASSERT_NE(ranks.at(1).recent.front().thread, ranks.at(1).main_thread);
  expect_no_hang(ranks);
}

TEST(NoHang, WhoDoesNotNeedTheMissingRank) {
  MadeUp ranks(3);
  ranks.enters(0, "broadcast", {.root = 0});
  ranks.enters(1, "broadcast", {.root = 0});  // which has nothing to pass on
  ranks.finishes(2);
  EXPECT_EQ(proven_hang(ranks).reference_ranks, RankSet{0});
  MadeUp gather(3);
  gather.enters(1, "gather", {.root = 0});
  gather.finishes(2);
  expect_no_hang(gather);
}

/// The ranks that rank `self` waits for, alone in the collective.
RankSet needs(int size, const char* op, int root, int self, int64_t elements = 1000) {
  MadeUp ranks(size);
  ranks.enters(self, op, {.root = root, .shape = {elements}});
  return waited_for(ranks.picture, self);
}

TEST(NoHang, WhoIsNeededInTheTreeOfABroadcast) {
  // Places from the root: 0 → 1, 2, 4; 1 → 3, 5. With root 1, place p is rank (p + 1) % 6.
  EXPECT_EQ(needs(6, "broadcast", 1, 1), (RankSet{2, 3, 5}));
  EXPECT_EQ(needs(6, "broadcast", 1, 2), (RankSet{0, 1, 4}));
  EXPECT_EQ(needs(6, "broadcast", 1, 3), RankSet{1});
  EXPECT_EQ(needs(6, "broadcast", 1, 4), (RankSet{1, 2}));
}

TEST(NoHang, WhoIsNeededInScatterAndGather) {
  for (const char* op : {"scatter", "gather"}) {
    EXPECT_EQ(needs(3, op, 1, 1), (RankSet{0, 2})) << op;
    EXPECT_EQ(needs(3, op, 1, 2), RankSet{1}) << op;
  }
}

TEST(NoHang, WhoIsNeededInTheRingOfAReduce) {
  EXPECT_EQ(needs(4, "reduce", 0, 3), (RankSet{0, 1, 2})) << "its chunk goes through all ranks";
  // One element: it goes from rank 3 over 2 and 1 to 0.
  EXPECT_EQ(needs(4, "reduce", 3, 3, 1), (RankSet{0, 1, 2})) << "the root gets it at the end";
  EXPECT_EQ(needs(4, "reduce", 0, 3, 1), RankSet{2});
  EXPECT_EQ(needs(4, "reduce", 0, 2, 1), (RankSet{1, 3}));
}

TEST(NoHang, ARootOnADeviceNeedNotWait) {
  MadeUp ranks(2);
  ranks.enters(0, "broadcast", {.root = 0});
  ranks.at(0).waits[0].call.on_device = true;
  ranks.finishes(1);
  expect_no_hang(ranks);
}

TEST(NoHang, TensorsWithoutElements) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce", {.shape = {0}});
  ranks.finishes(1);
  expect_no_hang(ranks);
}

TEST(NoHang, AReceiveFromAnyoneWhileSomebodyMaySend) {
  MadeUp ranks(3);
  ranks.enters(0, "recv");
  ranks.finishes(1);
  expect_no_hang(ranks);
  ranks.finishes(2);
  EXPECT_EQ(analyse_hang(ranks.picture).proven.size(), 1u);
}

TEST(NoHang, AMessageThatIsOnItsWay) {
  MadeUp ranks(2);
  ranks.done(1, "send", {.root = 0});
  ranks.enters(0, "recv", {.root = 1});
  ranks.finishes(1);
  expect_no_hang(ranks);
}

TEST(NoHang, AllToAllWithOtherSizes) {
  MadeUp ranks(2);
  ranks.enters(0, "all_to_all_single", {.shape = {4}});
  ranks.enters(1, "all_to_all_single", {.shape = {6}});
  expect_no_hang(ranks);
}

TEST(NoHang, NobodyWaits) {
  MadeUp ranks(2);
  ranks.finishes(1);
  expect_no_hang(ranks);
}

}  // namespace
}  // namespace lockstep::inspect
