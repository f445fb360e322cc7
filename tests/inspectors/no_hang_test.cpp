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
  ranks.enters(0, "broadcast", {.root = 0});  // the root sends; whoever does not come is not waited for for ever
  ranks.finishes(2);
  expect_no_hang(ranks);
  MadeUp gather(3);
  gather.enters(1, "gather", {.root = 0});
  gather.finishes(2);
  expect_no_hang(gather);
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
