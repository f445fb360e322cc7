// Hangs of ranks that share memory: one that sends goes on, and waits in a later call.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "inspectors/hang/needs.h"
#include "inspectors/hang/picture_json.h"
#include "inspectors/hang/state.h"
#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MadeUp sharing_ranks(int size) {
  MadeUp ranks(size);
  for (int rank = 0; rank < size; ++rank) ranks.group(rank, "default").shares_memory = true;
  return ranks;
}

void sleeps(MadeUp& ranks, int rank, int peer, int64_t seq) {
  ranks.group(rank, "default").sleeps_for = peer;
  ranks.group(rank, "default").sleeps_in = seq;
}

/// The ranks that rank `self` waits for, alone in the collective.
RankSet needs(const char* op, int self) {
  MadeUp ranks = sharing_ranks(6);
  ranks.enters(self, op, {.root = 1, .shape = {1000}});
  return waited_for(ranks.picture, self);
}

TEST(HangInSharedMemory, WhoIsNeededWithARoot) {
  for (const int self : {0, 2, 5}) EXPECT_EQ(needs("broadcast", self), RankSet{1}) << self;
  EXPECT_EQ(needs("broadcast", 1), RankSet()) << "it leaves its tensor there";
  EXPECT_EQ(needs("gather", 1), (RankSet{0, 2, 3, 4, 5}));
  EXPECT_EQ(needs("gather", 2), RankSet());
  EXPECT_EQ(needs("scatter", 2), RankSet{1}) << "over Gloo";
  EXPECT_EQ(needs("reduce", 2), (RankSet{0, 1, 3, 4, 5})) << "over Gloo";
}

TEST(HangInSharedMemory, AReceiverNeedsTheRootAlone) {
  MadeUp ranks = sharing_ranks(4);
  ranks.enters(1, "broadcast", {.root = 0});
  for (const int rank : {2, 3}) ranks.finishes(rank);  // through Gloo, rank 3 has its data from rank 1
  expect_no_hang(ranks);
  ranks.finishes(0);
  EXPECT_EQ(proven_hang(ranks).reference_ranks, RankSet{1});
}

TEST(HangInSharedMemory, ARootSleepsForARankThatHasLeft) {
  MadeUp ranks = sharing_ranks(3);
  for (int i = 0; i < 2; ++i) ranks.done(0, "broadcast", {.root = 0});
  ranks.enters(0, "broadcast", {.root = 0});
  for (int i = 0; i < 3; ++i) ranks.done(1, "broadcast", {.root = 0});
  ranks.finishes(1);
  ranks.finishes(2);
  expect_no_hang(ranks);  // it is on its way
  sleeps(ranks, 0, 2, 1);
  const Finding hang = proven_hang(ranks);
  EXPECT_EQ(hang.ranks, RankSet{2});
  EXPECT_EQ(hang.reference_ranks, RankSet{0});
}

// What it has called before it left ends on another thread.
TEST(HangInSharedMemory, ARankThatHasCalledTheEarlierCollectiveIsNotMissing) {
  MadeUp ranks = sharing_ranks(2);
  for (int i = 0; i < 2; ++i) ranks.done(0, "broadcast", {.root = 0});
  ranks.enters(0, "broadcast", {.root = 0});
  ranks.done(1, "broadcast", {.root = 0});
  ranks.finishes(1);
  sleeps(ranks, 0, 1, 1);
  expect_no_hang(ranks);
  sleeps(ranks, 0, 1, 4);  // which was read after the third had ended
  expect_no_hang(ranks);
  sleeps(ranks, 0, 1, 2);
  EXPECT_EQ(proven_hang(ranks).ranks, RankSet{1});
}

TEST(HangInSharedMemory, NotAllRanksHaveEnteredWhatTheRankNeedsNoMoreOf) {
  MadeUp ranks = sharing_ranks(3);
  for (const int rank : {0, 1}) ranks.enters(rank, "broadcast", {.root = 0});
  EXPECT_THAT(rank_sentence(ranks.picture, ranks.at(1)), Not(HasSubstr("all ranks")));
  ranks.enters(2, "broadcast", {.root = 0});
  EXPECT_THAT(rank_sentence(ranks.picture, ranks.at(1)), HasSubstr(", which all ranks have entered"));
}

TEST(HangInSharedMemory, IsKnownOnAnotherMachine) {
  MadeUp ranks = sharing_ranks(3);
  sleeps(ranks, 0, 2, 1);
  RankPicture there;
  take_log_json(there, nlohmann::json::parse(log_json(ranks.at(0)).dump()));
  ASSERT_EQ(there.groups.size(), 1u);
  EXPECT_TRUE(there.groups[0].shares_memory);
  EXPECT_EQ(there.groups[0].sleeps_for, 2);
  EXPECT_EQ(there.groups[0].sleeps_in, 1);
}

TEST(RanksOfAGroup, AreThreeNumbersInAMessageWhereTheyAreRegular) {
  std::vector<int> all;
  for (int rank = 0; rank < 1000; ++rank) all.push_back(rank);
  const std::vector<std::vector<int>> groups = {all, {3, 11, 19}, {4, 2, 0}, {5}, {0, 1, 3}, {}};
  MadeUp ranks(1000);
  for (const auto& each : groups) ranks.add_group("some", each);
  const std::string message = log_json(ranks.at(0)).dump();
  EXPECT_LT(message.size(), 3000u);
  RankPicture there;
  take_log_json(there, nlohmann::json::parse(message));
  ASSERT_EQ(there.groups.size(), groups.size() + 1);
  for (size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(there.groups[i + 1].ranks, groups[i]) << i;
}

}  // namespace
}  // namespace lockstep::inspect
