// Digests of calls that two ranks have made: alike, or not, in a single call and in a block of calls.
#include "collectives/log/call_digests.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::dist {
namespace {

/// A rank that calls collectives of one group. Their signature is the number of the call, or what it is told.
class Rank {
 public:
  explicit Rank(int rank) : log_("", rank, 2), group_(log_.add_group("0", {0, 1}, rank, 0)) {
    log_.mapping().header().compares = 1;
  }

  log_layout::Group& group() { return log_.mapping().group(group_); }

  void call(int count) {
    for (int i = 0; i < count; ++i) call_signed(static_cast<uint64_t>(seq_) + 1000);
  }
  void call_signed(uint64_t signature) {
    log_.begin(group_, ++seq_, {.signature = signature});
    group().last_entered = seq_;
  }

  /// Sends to the other rank, or receives from it: so many bytes of float32.
  void message(CollectiveOp op, int64_t bytes, int tag = 0, bool on_device = false) {
    const int me = log_.mapping().header().rank;
    auto& group = log_.mapping().group(group_);
    auto& count = (op == CollectiveOp::send ? group.sent : group.received)[1 - me];
    const int64_t seq = count.fetch_add(1) + 1;
    log_.begin(group_, seq,
               {.op = op,
                .dtype = 6,
                .flags = static_cast<uint8_t>(log_layout::kPointToPoint | (on_device ? log_layout::kOnDevice : 0)),
                .root = 1 - me,
                .bytes = bytes,
                .tag = tag,
                .tag_seq = ++of_tag_[{op, on_device ? -1 : tag}]});
  }
  void all_to_all(const std::vector<int64_t>& splits) {
    log_.begin(group_, ++seq_, {.op = CollectiveOp::all_to_all, .signature = 7, .words = &splits});
    group().last_entered = seq_;
  }

  void make_group_anew() {
    log_.remove_group(group_);
    group_ = log_.add_group("0", {0, 1}, log_.mapping().header().rank, 0);
    log_.mapping().group(group_).generation = ++generation_;
    seq_ = 0;
    of_tag_.clear();
  }
  /// Connects the group anew: numbers go on.
  void regroup() {
    group().generation = ++generation_;
    group().last_entered = group().last_before = seq_;
  }
  CollectiveLog& log() { return log_; }
  std::vector<CallDigests> digests() const {
    return nlohmann::json::parse(nlohmann::json(call_digests(CollectiveLogReader(log_.mapping()))).dump());
  }

 private:
  CollectiveLog log_;
  uint32_t group_;
  int64_t seq_ = 0, generation_ = 0;
  std::map<std::pair<CollectiveOp, int>, int64_t> of_tag_;
};

class Digests : public ::testing::Test {
 protected:
  std::optional<DifferingCalls> differing() const {
    const auto found = differing_calls({{0, first.digests()}, {1, second.digests()}});
    return found.empty() ? std::nullopt : std::optional(found.front());
  }
  std::string transfer() const {
    const auto found = differing_transfers({{0, first.digests()}, {1, second.digests()}});
    return found.empty() ? "" : found.front().str("a.py:1", "");
  }
  Rank first{0}, second{1};
};

TEST_F(Digests, RanksThatCalledTheSameAreAlikeWhereverEachIs) {
  first.call(1000);
  second.call(7);
  EXPECT_FALSE(differing());
  second.call(980);
  EXPECT_FALSE(differing());
}

TEST_F(Digests, TheFirstCallThatDiffers) {
  for (Rank* each : {&first, &second}) each->call(100);
  first.call_signed(1);
  second.call_signed(2);
  first.call(3);
  second.call(3);
  first.call_signed(1);
  const auto found = differing();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->group, "0");
  EXPECT_EQ(found->first, 101);
  EXPECT_EQ(found->last, 101);
}

TEST_F(Digests, ACallThatIsLongPastIsInABlock) {
  for (Rank* each : {&first, &second}) each->call(100);
  first.call_signed(1);
  second.call_signed(2);
  for (Rank* each : {&first, &second}) each->call(2000);
  const auto found = differing();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, 65);
  EXPECT_EQ(found->last, 128);
}

TEST_F(Digests, AGroupThatWasMadeAnewIsAnotherOne) {
  for (Rank* each : {&first, &second}) each->call(10);
  first.make_group_anew();
  first.call_signed(1);
  EXPECT_FALSE(differing());
  second.make_group_anew();
  second.call_signed(2);
  const auto found = differing();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, 1);
}

TEST_F(Digests, CallsOfAnEarlierGenerationAreNotCompared) {
  first.call(4);
  second.call(4);
  first.call_signed(1);
  second.call_signed(2);
  EXPECT_TRUE(differing());
  for (Rank* each : {&first, &second}) {
    each->regroup();
    each->call(1);
  }
  EXPECT_FALSE(differing());
  second.call_signed(2);
  first.call_signed(1);
  ASSERT_TRUE(differing());
  EXPECT_EQ(differing()->first, 7);
}

TEST_F(Digests, CallsOfAGroupThatHadThePlaceBeforeAreNotCompared) {
  first.call_signed(1);
  second.call_signed(2);
  for (Rank* each : {&first, &second}) each->make_group_anew();
  EXPECT_FALSE(differing());
  first.call(1);
  EXPECT_FALSE(differing());
}

TEST_F(Digests, RanksThatDoNotCompareAreNotCompared) {
  second.log().mapping().header().compares = 0;
  first.call_signed(1);
  second.call_signed(2);
  EXPECT_FALSE(differing());
  EXPECT_TRUE(second.digests().empty());
}

TEST_F(Digests, MessagesThatAreReceivedAsTheyAreSent) {
  for (int i = 0; i < 100; ++i) {
    first.message(CollectiveOp::send, 4 * i, i % 3);
    if (i < 90) second.message(CollectiveOp::recv, 4 * i, i % 3);
    second.message(CollectiveOp::send, 8);
  }
  EXPECT_EQ(transfer(), "");
}

TEST_F(Digests, TagsMayBeReceivedInAnotherOrder) {
  first.message(CollectiveOp::send, 4, 1);
  first.message(CollectiveOp::send, 8, 2);
  second.message(CollectiveOp::recv, 8, 2);
  second.message(CollectiveOp::recv, 4, 1);
  EXPECT_EQ(transfer(), "");
}

TEST_F(Digests, MessagesOnADeviceAreCountedApart) {
  first.message(CollectiveOp::send, 2);
  for (const int64_t bytes : {4, 8}) first.message(CollectiveOp::send, bytes, 0, /*on_device=*/true);
  for (const int64_t bytes : {4, 8}) second.message(CollectiveOp::recv, bytes, 0, /*on_device=*/true);
  second.message(CollectiveOp::recv, 2);
  EXPECT_EQ(transfer(), "");
}

TEST_F(Digests, AMessageOfAnotherSize) {
  for (int i = 0; i < 2; ++i) first.message(CollectiveOp::send, 16, 5);
  second.message(CollectiveOp::recv, 16, 5);
  second.message(CollectiveOp::recv, 32, 5);
  EXPECT_EQ(
      transfer(),
      "rank 0 sends 16 bytes of float32 to rank 1 (a.py:1), which expects 32 bytes of float32: message #2 between "
      "them with tag 5 of group 0");
}

TEST_F(Digests, WhoReceivesFromAnyRankIsNotCompared) {
  first.message(CollectiveOp::send, 16);
  second.group().received_from_any = 1;
  second.message(CollectiveOp::recv, 32);
  EXPECT_EQ(transfer(), "");
}

TEST_F(Digests, MessagesOfAGroupThatWasMadeAnewSince) {
  for (int i = 0; i < 3; ++i) first.message(CollectiveOp::send, 16);
  for (int i = 0; i < 3; ++i) second.message(CollectiveOp::recv, 16);
  for (Rank* each : {&first, &second}) each->make_group_anew();
  for (int i = 0; i < 3; ++i) second.message(CollectiveOp::recv, 32);  // posted early; the other rank has sent none
  EXPECT_EQ(transfer(), "");
  first.message(CollectiveOp::send, 16);
  EXPECT_NE(transfer(), "");
}

TEST_F(Digests, PartsOfAnAllToAll) {
  first.all_to_all({1, 2, 1, 3});
  second.all_to_all({3, 1, 2, 1});
  EXPECT_EQ(transfer(), "");
  for (Rank* each : {&first, &second}) each->call(3);
  first.all_to_all({1, 2, 1, 3});
  second.all_to_all({3, 1, 4, 1});
  EXPECT_EQ(transfer(),
            "rank 0 sends 2 elements to rank 1 (a.py:1), which expects 4 elements: all_to_all #5 of group 0");
}

}  // namespace
}  // namespace lockstep::dist
