// Who waits for whom, in pictures that are made up: each verdict, and what looks like one and is none.
#include "inspectors/hang/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "inspectors/hang/analysis.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/state.h"
#include "protocol/dist_error.h"
#include "tests/inspectors/made_up_ranks.h"

namespace lockstep::inspect {
namespace {

using testing::HasSubstr;
using testing::Not;

Finding only(const MadeUp& ranks) {
  const auto analysis = analyse_hang(ranks.picture);
  EXPECT_EQ(analysis.proven.size(), 1u);
  if (analysis.proven.size() != 1) return {};
  EXPECT_EQ(analysis.proven[0].finding.severity, Severity::fault);
  EXPECT_EQ(analysis.proven[0].finding.inspector, "hang");
  return analysis.proven[0].finding;
}

void expect_nothing(const MadeUp& ranks) {
  for (const auto& hang : analyse_hang(ranks.picture).proven) ADD_FAILURE() << hang.finding.message;
}

// ---- Messages and their tags --------------------------------------------------------------------------------------

TEST(Hang, TagsThatNeverMatch) {
  MadeUp ranks(2);
  ranks.enters(0, "send", {.root = 1, .tag = 1, .line = 3});
  ranks.enters(1, "recv", {.root = 0, .tag = 2, .line = 5});
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "tag");
  EXPECT_EQ(finding.ranks, (RankSet{0, 1}));
  EXPECT_EQ(
      finding.message,
      "rank 0 waits in send #1 to rank 1 with tag 1 (cell 7, line 3) for rank 1, and rank 1 waits in recv #1 from "
      "rank 0 with tag 2 (cell 7, line 5) for rank 0: the tags 1 and 2 do not match, so that the message is never "
      "received. A recv gets what was sent with its tag only");
}

TEST(Hang, TagsThatNeverMatchAfterManyThatDid) {
  MadeUp ranks(2);
  for (int tag = 0; tag < 20; ++tag) {
    ranks.done(0, "send", {.root = 1, .tag = tag});
    ranks.done(1, "recv", {.root = 0, .tag = tag});
  }
  ranks.enters(0, "send", {.root = 1, .tag = 5});
  ranks.enters(1, "recv", {.root = 0, .tag = 6});
  EXPECT_EQ(only(ranks).kind, "tag");
}

TEST(Hang, MessagesInAnotherOrderOfTagsAreNoHang) {
  MadeUp ranks(2);
  ranks.enters(0, "send", {.root = 1, .tag = 1, .async = true});
  ranks.enters(0, "send", {.root = 1, .tag = 2});
  ranks.done(1, "recv", {.root = 0, .tag = 2});
  ranks.enters(1, "recv", {.root = 0, .tag = 1});
  expect_nothing(ranks);
}

TEST(Hang, ARecvFromAnyRankMayTakeAnyMessage) {
  MadeUp ranks(3);
  ranks.enters(0, "send", {.root = 1, .tag = 4});
  ranks.enters(1, "recv", {.tag = 4});
  expect_nothing(ranks);
}

TEST(Hang, ListsOfObjectsAreMessages) {
  MadeUp ranks(2);
  ranks.enters(0, "send_object_list", {.root = 1});
  ranks.finishes(1);
  EXPECT_THAT(only(ranks).message, HasSubstr("rank 0 waits in send_object_list #1 to rank 1 (cell 7, line 4)"));
}

TEST(Hang, AGatherOfObjectsNeedsEveryRank) {
  MadeUp ranks(3);
  ranks.enters(1, "gather_object", {.root = 0});
  ranks.enters(2, "gather_object", {.root = 0});
  ranks.enters(0, "gather_object", {.root = 0});
  ranks.at(2).waits.clear();
  --ranks.group(2, "default").entered;
  ranks.finishes(2);
  EXPECT_EQ(only(ranks).reference_ranks, (RankSet{0, 1}));
}

// ---- A rank that has gone -----------------------------------------------------------------------------------------

TEST(Hang, ARankThatFinishedIsWaitedForInVain) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.done(r, "broadcast", {.root = 0, .line = 2});
  ranks.enters(0, "all_reduce");
  ranks.enters(2, "all_reduce");
  ranks.finishes(1);
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.verdict, "hang");
  EXPECT_EQ(finding.kind, "finished");
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_EQ(finding.op->name, "all_reduce");
  EXPECT_EQ(finding.op->seq, 2);
  EXPECT_EQ(finding.where, "cell 7, line 4");
  EXPECT_EQ(finding.message,
            "ranks 0,2 wait in all_reduce #2 (cell 7, line 4), and rank 1 has finished without entering it, its last "
            "being broadcast #1 (cell 7, line 2)");
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
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "finished");
  EXPECT_THAT(
      finding.message,
      HasSubstr("; rank 1 threw std::runtime_error (cell 7, line 2) behind all_reduce #2 and caught it: if it left "
                "out a call then, its calls since, #3 to #5, have met those of other steps on the others"));
  // An exception that was not caught is reported as before.
  ranks.at(1).how = "error";
  EXPECT_THAT(only(ranks).message, Not(HasSubstr("caught")));
}

TEST(Hang, ARankThatThrewIsTheCause) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.throws(1);
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "threw");
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_THAT(finding.message, HasSubstr("rank 1 threw std::runtime_error (cell 7, line 3)"));
}

TEST(Hang, ADeadRank) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.dies(1);
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.verdict, "dead");
  EXPECT_EQ(finding.kind, "died");
  EXPECT_THAT(finding.message, HasSubstr("rank 1 died of SIGKILL"));
}

TEST(Hang, ARankThatDoesNotRunTheCell) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.at(1).place = RankPicture::Place::elsewhere;
  EXPECT_EQ(only(ranks).kind, "not_in_cell");
}

TEST(Hang, SeveralThatHaveGoneInSeveralWays) {
  MadeUp ranks(4);
  ranks.enters(0, "barrier");
  ranks.throws(1);
  ranks.finishes(2);
  ranks.finishes(3);
  const Finding finding = only(ranks);
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
  const Finding finding = only(ranks);
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
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "left_group");
  EXPECT_THAT(finding.message, HasSubstr("rank 1 has destroyed the group"));
}

TEST(Hang, ARankOutsideTheGroupIsNamed) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 2});
  ranks.enters(0, "all_reduce", "group_1");
  ranks.throws(1, "lockstep::dist::ArgumentError", "dist::all_reduce: rank 1 is not in group group_1 (ranks 0,2). …");
  ranks.finishes(2);
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "outside_group");
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
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_TRUE(finding.message.starts_with("ranks 0,2 wait in all_reduce #1 (cell 7, line 1), and rank 1"));
}

// ---- A rank that sits in another collective -----------------------------------------------------------------------

TEST(Hang, TwoGroupsCrossed) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {0, 1});
  ranks.enters(0, "all_reduce", {.group = "group_1", .line = 4});
  ranks.enters(1, "all_reduce", {.group = "group_2", .line = 9});
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "other_collective");
  EXPECT_EQ(finding.ranks, (RankSet{0, 1}));
  EXPECT_TRUE(finding.reference_ranks.empty());
  EXPECT_TRUE(finding.message.starts_with(
      "rank 0 waits in all_reduce #1 of group_1 (cell 7, line 4) for rank 1, and rank 1 waits in all_reduce #1 of "
      "group_2 (cell 7, line 9) for rank 0: none of them can go on."));
}

TEST(Hang, TheMajorityIsRight) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {2, 3});
  for (int r : {0, 1, 2}) ranks.enters(r, "all_reduce");
  ranks.enters(3, "barrier", "group_1");
  const Finding finding = only(ranks);
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
  EXPECT_EQ(only(ranks).ranks, (RankSet{0, 1, 2}));
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

TEST(Hang, BothReceiveFirst) {
  MadeUp ranks(2);
  ranks.enters(0, "recv", {.root = 1});
  ranks.enters(1, "recv", {.root = 0});
  const Finding finding = only(ranks);
  EXPECT_THAT(finding.message, HasSubstr("rank 0 waits in recv #1 from rank 1 (cell 7, line 4) for rank 1"));
}

TEST(Hang, BothSendFirst) {
  MadeUp ranks(2);
  ranks.enters(0, "send", {.root = 1});
  ranks.enters(1, "send", {.root = 0});
  EXPECT_EQ(only(ranks).ranks, (RankSet{0, 1}));
}

TEST(Hang, AReceiveFromARankThatFinished) {
  MadeUp ranks(2);
  ranks.enters(0, "recv", {.root = 1});
  ranks.finishes(1);
  EXPECT_EQ(only(ranks).ranks, RankSet{1});
}

TEST(Hang, ACollectiveAgainstAReceive) {
  MadeUp ranks(2);
  ranks.enters(0, "barrier");
  ranks.enters(1, "recv", {.root = 0});
  EXPECT_EQ(only(ranks).ranks, (RankSet{0, 1}));
}

TEST(Hang, SeveralCollectivesUnderWayNoneOfWhichCanEnd) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.enters(0, "all_reduce", {.async = true});
  ranks.enters(0, "all_reduce", {.async = true});
  ranks.enters(1, "barrier", "group_1");
  EXPECT_EQ(analyse_hang(ranks.picture).proven.size(), 1u);
}

TEST(Hang, ANewGroupThatOneMemberDoesNotMake) {
  MadeUp ranks(3);
  ranks.enters(0, "new_group", {.shape = {0, 1}});
  ranks.finishes(1);
  EXPECT_EQ(only(ranks).ranks, RankSet{1});
  MadeUp others(3);
  others.enters(0, "new_group", {.shape = {0, 1}});
  others.finishes(2);  // only counts along: nobody waits for it
  expect_nothing(others);
}

// ---- Consequences: ranks that left because another one broke their collective -------------------------------------

TEST(Aftermath, OfADeath) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.done(r, "barrier");
  for (int r : {0, 2}) ranks.enters(r, "all_reduce"), ranks.breaks_off(r);
  ranks.dies(1);
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.verdict, "dead");
  EXPECT_EQ(finding.kind, "died");
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
  EXPECT_EQ(only(ranks).ranks, RankSet{1});
}

TEST(Aftermath, WhoClosedTheGroupIsTheCause) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  for (int r : {0, 1}) ranks.done(r, "all_reduce", {.group = "group_1"});
  ranks.enters(0, "all_reduce", "group_1");
  ranks.breaks_off(0);
  ranks.destroys(1, "group_1");
  ranks.enters(1, "barrier");
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "left_group");
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
  EXPECT_EQ(only(ranks).kind, "left_group");
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
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.verdict, "dead");
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
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "threw");
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
}

TEST(Aftermath, ABrokenConnectionThatNobodyExplainsIsThatRanks) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {1, 2});
  for (int r : {0, 1}) ranks.enters(r, "all_reduce"), ranks.breaks_off(r);
  ranks.enters(2, "barrier", "group_1");
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.kind, "threw");
  EXPECT_EQ(finding.ranks, RankSet{1});
}

TEST(Aftermath, WhoFinishedIsNotBlamedForWhatAnotherBroke) {
  MadeUp ranks(3);
  ranks.done(2, "all_reduce");
  ranks.finishes(2);
  ranks.enters(0, "all_reduce");
  ranks.breaks_off(0);
  ranks.dies(1);
  EXPECT_EQ(only(ranks).ranks, RankSet{1});
}

TEST(Aftermath, OfCallsThatDidNotMatchIsNoFaultOfItsOwn) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 2});
  ranks.throws(0, "lockstep::dist::CollectiveMismatch");
  ranks.throws(1, "lockstep::dist::CollectiveMismatch");
  ranks.enters(2, "barrier", "group_1");
  const auto analysis = analyse_hang(ranks.picture);
  ASSERT_EQ(analysis.proven.size(), 1u) << "it waits in vain all the same";
  EXPECT_TRUE(analysis.proven[0].consequence);
  MadeUp others(2);
  others.throws(1);
  others.enters(0, "barrier");
  EXPECT_FALSE(analyse_hang(others.picture).proven.at(0).consequence);
}

// ---- Calls that do not match, where nobody compared them ----------------------------------------------------------

TEST(Hang, AnotherOperationAtTheSamePlace) {
  MadeUp ranks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "broadcast", {.root = 0, .line = 9});
  ranks.enters(2, "all_reduce");
  const Finding finding = only(ranks);
  EXPECT_EQ(finding.verdict, "op_mismatch");
  EXPECT_EQ(finding.ranks, RankSet{1});
  EXPECT_EQ(finding.reference_ranks, (RankSet{0, 2}));
  EXPECT_EQ(finding.where, "cell 7, line 9");
  EXPECT_TRUE(finding.message.starts_with(
      "rank 1 called broadcast float32 [2] root 0 (cell 7, line 9), ranks 0,2 called all_reduce float32 [2] SUM (cell "
      "7, line 4) as #1 of group default"));
}

TEST(Hang, CallsThatARankHasComparedAreItsToTell) {
  MadeUp ranks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "barrier");
  ranks.picture.calls_compared = true;
  expect_nothing(ranks);
  ranks.picture.calls_compared = false;  // not known: the log alone
  ranks.at(1).waits.clear();  // it has not entered, and gives rank 2 the time to come
  ranks.at(1).recent.back().state = dist::CollectiveState::failed;
  expect_nothing(ranks);
  ranks.throws(1, "lockstep::dist::CollectiveMismatch");
  for (const auto& hang : analyse_hang(ranks.picture).proven) EXPECT_TRUE(hang.consequence) << hang.finding.message;
  ranks.at(1).error_type = "lockstep::dist::Error";  // nobody compared: the transport refused it
  EXPECT_EQ(analyse_hang(ranks.picture).proven.at(0).finding.verdict, "op_mismatch");
}

TEST(Hang, AnotherShapeDtypeRootOrReduceOperation) {
  const auto verdict = [](const std::string& op, MadeUp::Options a, MadeUp::Options b) {
    MadeUp ranks(2);
    ranks.enters(0, op, a);
    ranks.enters(1, op, b);
    return only(ranks).verdict;
  };
  EXPECT_EQ(verdict("all_reduce", {}, {.shape = {3}}), "shape_mismatch");
  EXPECT_EQ(verdict("all_reduce", {}, {.dtype = "int64"}), "dtype_mismatch");
  EXPECT_EQ(verdict("all_reduce", {}, {.reduce_op = "MAX"}), "op_mismatch");
  EXPECT_EQ(verdict("broadcast", {.root = 0}, {.root = 1}), "op_mismatch");
}

TEST(Hang, TheSameCallsInAnotherOrder) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce", {.async = true});
  ranks.enters(0, "barrier");
  ranks.enters(1, "barrier", {.async = true});
  ranks.enters(1, "all_reduce");
  const auto analysis = analyse_hang(ranks.picture);
  ASSERT_FALSE(analysis.proven.empty());
  EXPECT_EQ(analysis.proven[0].finding.verdict, "order_mismatch");
}

TEST(Hang, AnOrderThatUsedToBeAnother) {
  MadeUp ranks(2);
  for (int step = 0; step < 3; ++step)
    for (int r : {0, 1}) ranks.done(r, "all_reduce"), ranks.done(r, "broadcast", {.root = 0});
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "broadcast", {.root = 0});
  EXPECT_EQ(only(ranks).verdict, "order_mismatch");
}

// ---- What is no hang ----------------------------------------------------------------------------------------------

TEST(NoHang, ARankThatComputesBeforeItJoins) {
  MadeUp ranks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "all_reduce");
  expect_nothing(ranks);
  EXPECT_EQ(waited_for(ranks.picture, 0), RankSet{2});
}

TEST(NoHang, ALongCollectiveThatAllHaveEntered) {
  MadeUp ranks(3);
  for (int r : {0, 1, 2}) ranks.enters(r, "all_reduce");
  expect_nothing(ranks);
  EXPECT_TRUE(waited_for(ranks.picture, 0).empty());
}

TEST(NoHang, ACircleWhoseRanksStillCompute) {
  MadeUp ranks(2);
  ranks.add_group("group_1", {0, 1});
  ranks.enters(0, "all_reduce", {.async = true, .waits = false});
  ranks.enters(1, "all_reduce", "group_1");
  expect_nothing(ranks);
  EXPECT_TRUE(analyse_hang(ranks.picture).suspicious) << "it may close";
}

TEST(NoHang, ARankWithACollectiveThatMayEnd) {
  MadeUp ranks(3);
  ranks.add_group("group_1", {0, 1});
  ranks.add_group("group_2", {0, 2});
  ranks.enters(0, "all_reduce", {.group = "group_1", .async = true});
  ranks.enters(0, "all_reduce", {.group = "group_2", .async = true});  // rank 2 computes and may come
  ranks.enters(1, "barrier");
  expect_nothing(ranks);
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
  expect_nothing(ranks);
}

TEST(NoHang, WhoDoesNotNeedTheMissingRank) {
  MadeUp ranks(3);
  ranks.enters(0, "broadcast", {.root = 0});  // the root sends; whoever does not come is not waited for for ever
  ranks.finishes(2);
  expect_nothing(ranks);
  MadeUp gather(3);
  gather.enters(1, "gather", {.root = 0});
  gather.finishes(2);
  expect_nothing(gather);
}

TEST(NoHang, TensorsWithoutElements) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce", {.shape = {0}});
  ranks.finishes(1);
  expect_nothing(ranks);
}

TEST(NoHang, AReceiveFromAnyoneWhileSomebodyMaySend) {
  MadeUp ranks(3);
  ranks.enters(0, "recv");
  ranks.finishes(1);
  expect_nothing(ranks);
  ranks.finishes(2);
  EXPECT_EQ(analyse_hang(ranks.picture).proven.size(), 1u);
}

TEST(NoHang, AMessageThatIsOnItsWay) {
  MadeUp ranks(2);
  ranks.done(1, "send", {.root = 0});
  ranks.enters(0, "recv", {.root = 1});
  ranks.finishes(1);
  expect_nothing(ranks);
}

TEST(NoHang, AllToAllWithOtherSizes) {
  MadeUp ranks(2);
  ranks.enters(0, "all_to_all_single", {.shape = {4}});
  ranks.enters(1, "all_to_all_single", {.shape = {6}});
  expect_nothing(ranks);
}

TEST(NoHang, NobodyWaits) {
  MadeUp ranks(2);
  ranks.finishes(1);
  expect_nothing(ranks);
}

// ---- No progress within a limit -----------------------------------------------------------------------------------

TEST(Stalled, NamesTheRankThatSleepsAndWhere) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  ranks.at(1).activity = Activity::sleeping;
  const auto finding = stalled(ranks.picture, 2);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, "sleeping");
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
  for (const auto& [activity, kind] : {std::pair{Activity::computing, "computing"}, std::pair{Activity::lock, "lock"},
                                       std::pair{Activity::loading_data, "loading_data"}}) {
    MadeUp ranks(3);
    ranks.enters(0, "all_reduce");
    ranks.enters(2, "all_reduce");
    ranks.at(1).activity = activity;
    EXPECT_EQ(stalled(ranks.picture, 1)->kind, kind);
  }
}

TEST(Stalled, RanksThatComputeAndThatNobodyWaitsForAreNone) {
  MadeUp ranks(2);
  EXPECT_FALSE(stalled(ranks.picture, 1));
  ranks.at(0).activity = Activity::lock;
  EXPECT_FALSE(stalled(ranks.picture, 1)) << "rank 1 computes, and may hold the lock";
  ranks.at(1).activity = Activity::lock;
  EXPECT_EQ(stalled(ranks.picture, 1)->ranks, (RankSet{0, 1}));
}

// ---- Logs ---------------------------------------------------------------------------------------------------------

class Logs : public testing::Test {
 protected:
  Logs() {
    std::string pattern = std::filesystem::temp_directory_path() / "lockstep-hang-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Logs() override { std::filesystem::remove_all(folder_); }

  std::string path(int rank) const { return folder_ + "/" + std::to_string(rank); }

  std::string folder_;
};

uint64_t enter(dist::CollectiveLog& log, uint32_t group, int64_t seq,
               dist::CollectiveOp op = dist::CollectiveOp::barrier) {
  const uint64_t entry = log.begin(group, seq, {.op = op});
  log.mapping().group(group).last_entered = seq;
  return entry;
}

TEST_F(Logs, AreEnoughToSeeGroupsCrossed) {
  dist::CollectiveLog zero(path(0), 0, 2), one(path(1), 1, 2);
  uint32_t first[2], second[2];
  for (auto* log : {&zero, &one}) {
    const int rank = log == &zero ? 0 : 1;
    first[rank] = log->add_group("default", {0, 1}, rank, 0);
    second[rank] = log->add_group("group_1", {0, 1}, rank, 0);
  }
  EXPECT_EQ(hang({path(0), path(1)}, 0).at(0).verdict, "ok");
  enter(zero, first[0], 1);
  EXPECT_EQ(hang({path(0), path(1)}, 0).at(0).verdict, "ok");
  enter(one, second[1], 1);
  const auto findings = hang({path(1), path(0)}, 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, "hang");
  EXPECT_EQ(findings[0].ranks, (RankSet{0, 1}));
  EXPECT_EQ(hang({path(0), path(1)}, 1000).at(0).verdict, "ok") << "too fresh to say";
}

TEST_F(Logs, OfAProcessThatIsGone) {
  dist::CollectiveLog zero(path(0), 0, 2), one(path(1), 1, 2);
  for (auto* log : {&zero, &one}) log->add_group("default", {0, 1}, log == &zero ? 0 : 1, 0);
  enter(zero, 0, 1);
  one.mapping().header().process_start += 1;  // a later process with its pid
  const auto findings = hang({path(0), path(1)}, 0);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, "dead");
  EXPECT_EQ(findings[0].ranks, RankSet{1});
}

TEST_F(Logs, MustBeLogs) { EXPECT_THROW(hang({path(3)}), dist::Error); }

}  // namespace
}  // namespace lockstep::inspect
