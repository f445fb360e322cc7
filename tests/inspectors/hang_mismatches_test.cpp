// Calls that do not match, as the logs show them where no rank has compared the calls.
#include <gtest/gtest.h>

#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

TEST(Hang, AnotherOperationAtTheSamePlace) {
  MadeUp ranks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "broadcast", {.root = 0, .line = 9});
  ranks.enters(2, "all_reduce");
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::op_mismatch);
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
  expect_no_hang(ranks);
  ranks.picture.calls_compared = false;  // not known: the log alone
  ranks.at(1).waits.clear();  // it has not entered, and gives rank 2 the time to come
  ranks.at(1).recent.back().state = dist::CollectiveState::failed;
  expect_no_hang(ranks);
  ranks.throws(1, "lockstep::dist::CollectiveMismatch");
  for (const auto& hang : analyse_hang(ranks.picture).proven) EXPECT_TRUE(hang.consequence) << hang.finding.message;
  ranks.at(1).error_type = "lockstep::dist::Error";  // nobody compared: the transport refused it
  EXPECT_EQ(analyse_hang(ranks.picture).proven.at(0).finding.verdict, Verdict::op_mismatch);
}

TEST(Hang, AnotherShapeDtypeRootOrReduceOperation) {
  const auto verdict = [](const std::string& op, MadeUp::Options a, MadeUp::Options b) {
    MadeUp ranks(2);
    ranks.enters(0, op, a);
    ranks.enters(1, op, b);
    return proven_hang(ranks).verdict;
  };
  EXPECT_EQ(verdict("all_reduce", {}, {.shape = {3}}), Verdict::shape_mismatch);
  EXPECT_EQ(verdict("all_reduce", {}, {.dtype = "int64"}), Verdict::dtype_mismatch);
  EXPECT_EQ(verdict("all_reduce", {}, {.reduce_op = "MAX"}), Verdict::op_mismatch);
  EXPECT_EQ(verdict("broadcast", {.root = 0}, {.root = 1}), Verdict::op_mismatch);
}

TEST(Hang, TheSameCallsInAnotherOrder) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce", {.async = true});
  ranks.enters(0, "barrier");
  ranks.enters(1, "barrier", {.async = true});
  ranks.enters(1, "all_reduce");
  const auto analysis = analyse_hang(ranks.picture);
  ASSERT_FALSE(analysis.proven.empty());
  EXPECT_EQ(analysis.proven[0].finding.verdict, Verdict::order_mismatch);
}

TEST(Hang, AnOrderThatUsedToBeAnother) {
  MadeUp ranks(2);
  for (int step = 0; step < 3; ++step)
    for (int r : {0, 1}) ranks.done(r, "all_reduce"), ranks.done(r, "broadcast", {.root = 0});
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "broadcast", {.root = 0});
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::order_mismatch);
  EXPECT_NE(finding.message.find("so rank 1 left out the first or changed the order"), std::string::npos)
      << "that the calls are the same is not known: " << finding.message;
}

}  // namespace
}  // namespace lockstep::inspect
