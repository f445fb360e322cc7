// Hangs of messages: sends and receives that wait for one another, tags that do not match, and what is no hang yet.
#include <gmock/gmock.h>

#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;

TEST(Hang, TagsThatNeverMatch) {
  MadeUp ranks(2);
  ranks.enters(0, "send", {.root = 1, .tag = 1, .line = 3});
  ranks.enters(1, "recv", {.root = 0, .tag = 2, .line = 5});
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::tag);
  EXPECT_EQ(finding.ranks, (RankSet{0, 1}));
  EXPECT_EQ(
      finding.message,
      "rank 0 waits in send #1 to rank 1 with tag 1 (cell 7, line 3) for rank 1, and rank 1 waits in recv #1 from "
      "rank 0 with tag 2 (cell 7, line 5) for rank 0: the tags 1 and 2 do not match, so the message is never received. "
      "A recv gets only what was sent with its tag");
}

TEST(Hang, TagsThatNeverMatchAfterManyThatDid) {
  MadeUp ranks(2);
  for (int tag = 0; tag < 20; ++tag) {
    ranks.done(0, "send", {.root = 1, .tag = tag});
    ranks.done(1, "recv", {.root = 0, .tag = tag});
  }
  ranks.enters(0, "send", {.root = 1, .tag = 5});
  ranks.enters(1, "recv", {.root = 0, .tag = 6});
  EXPECT_EQ(proven_hang(ranks).kind, FindingKind::tag);
}

TEST(Hang, MessagesInAnotherOrderOfTagsAreNoHang) {
  MadeUp ranks(2);
  ranks.enters(0, "send", {.root = 1, .tag = 1, .async = true});
  ranks.enters(0, "send", {.root = 1, .tag = 2});
  ranks.done(1, "recv", {.root = 0, .tag = 2});
  ranks.enters(1, "recv", {.root = 0, .tag = 1});
  expect_no_hang(ranks);
}

TEST(Hang, ARecvFromAnyRankMayTakeAnyMessage) {
  MadeUp ranks(3);
  ranks.enters(0, "send", {.root = 1, .tag = 4});
  ranks.enters(1, "recv", {.tag = 4});
  expect_no_hang(ranks);
}

TEST(Hang, ListsOfObjectsAreMessages) {
  MadeUp ranks(2);
  ranks.enters(0, "send_object_list", {.root = 1});
  ranks.finishes(1);
  EXPECT_THAT(proven_hang(ranks).message, HasSubstr("rank 0 waits in send_object_list #1 to rank 1 (cell 7, line 4)"));
}

TEST(Hang, BothReceiveFirst) {
  MadeUp ranks(2);
  ranks.enters(0, "recv", {.root = 1});
  ranks.enters(1, "recv", {.root = 0});
  const Finding finding = proven_hang(ranks);
  EXPECT_THAT(finding.message, HasSubstr("rank 0 waits in recv #1 from rank 1 (cell 7, line 4) for rank 1"));
}

TEST(Hang, BothSendFirst) {
  MadeUp ranks(2);
  ranks.enters(0, "send", {.root = 1});
  ranks.enters(1, "send", {.root = 0});
  EXPECT_EQ(proven_hang(ranks).ranks, (RankSet{0, 1}));
}

TEST(Hang, AReceiveFromARankThatFinished) {
  MadeUp ranks(2);
  ranks.enters(0, "recv", {.root = 1});
  ranks.finishes(1);
  EXPECT_EQ(proven_hang(ranks).ranks, RankSet{1});
}

}  // namespace
}  // namespace lockstep::inspect
