// Digests of calls that two ranks have made: alike, or not, in a single call and in a block of calls.
#include "collectives/log/call_digests.h"

#include <gtest/gtest.h>

namespace lockstep::dist {
namespace {

/// A rank that calls collectives of one group. Their signature is the number of the call, or what it is told.
class Rank {
 public:
  explicit Rank(int rank) : log_("", rank, 2), group_(log_.add_group("0", {0, 1}, rank, 0)) {
    log_.mapping().header().compares = 1;
  }

  void call(int count) {
    for (int i = 0; i < count; ++i) call_signed(static_cast<uint64_t>(seq_) + 1000);
  }
  void call_signed(uint64_t signature) { log_.begin(group_, ++seq_, {.signature = signature}); }

  void make_group_anew() {
    log_.remove_group(group_);
    group_ = log_.add_group("0", {0, 1}, log_.mapping().header().rank, 0);
    log_.mapping().group(group_).generation = ++generation_;
    seq_ = 0;
  }
  CollectiveLog& log() { return log_; }
  std::vector<CallDigests> digests() const {
    return nlohmann::json::parse(nlohmann::json(call_digests(CollectiveLogReader(log_.mapping()))).dump());
  }

 private:
  CollectiveLog log_;
  uint32_t group_;
  int64_t seq_ = 0, generation_ = 0;
};

class Digests : public ::testing::Test {
 protected:
  std::optional<DifferingCalls> differing() const {
    return differing_calls({{0, first.digests()}, {1, second.digests()}});
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

TEST_F(Digests, RanksThatDoNotCompareAreNotCompared) {
  second.log().mapping().header().compares = 0;
  first.call_signed(1);
  second.call_signed(2);
  EXPECT_FALSE(differing());
  EXPECT_TRUE(second.digests().empty());
}

}  // namespace
}  // namespace lockstep::dist
