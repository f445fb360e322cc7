// What a reader of a rank's log learns of its calls, look by look.
#include "collectives/log/new_calls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace lockstep::dist {
namespace {

using log_layout::kEntryCapacity;

/// A rank of a group "0" over connections with the incarnation 7.
class NewCallsTest : public ::testing::Test {
 protected:
  NewCallsTest() {
    log_.mapping().header().compares = 1;
    connect(group_, 7);
  }
  ~NewCallsTest() override { ::unlink(path_.c_str()); }

  void connect(uint32_t group, uint64_t incarnation) {
    log_.mapping().group(group).incarnation = 0;
    log_.mapping().group(group).first_entry = log_.mapping().header().next_entry.load();
    log_.mapping().group(group).incarnation = incarnation;
  }
  uint64_t call(int64_t seq, uint64_t signature, uint8_t flags = 0) {
    return log_.begin(group_, seq, {.op = CollectiveOp::all_reduce, .flags = flags, .signature = signature});
  }
  /// Returns "7: #1 11, 7: #2 12".
  std::string take() {
    std::string text;
    for (const NewCall& each : calls_.take())
      text += (text.empty() ? "" : ", ") + std::to_string(each.incarnation) + ": #" + std::to_string(each.seq) + " " +
              std::to_string(each.signature);
    return text;
  }

  const std::string path_ = ::testing::TempDir() + "new_calls_" + std::to_string(::getpid());
  CollectiveLog log_{path_, 0, 2};
  uint32_t group_ = log_.add_group("0", {0, 1}, 0, 0);
  NewCalls calls_{path_};
};

TEST_F(NewCallsTest, EachCallComesOnce) {
  EXPECT_EQ(take(), "");
  call(1, 11);
  call(2, 12);
  EXPECT_EQ(take(), "7: #1 11, 7: #2 12");
  EXPECT_EQ(take(), "");
  call(3, 13);
  EXPECT_EQ(take(), "7: #3 13");
}

TEST_F(NewCallsTest, WhatNobodyComparesIsLeftOut) {
  call(1, 11, log_layout::kPointToPoint);
  log_.begin(log_.add_group("without an incarnation", {0, 1}, 0, 0), 1, {.signature = 12});
  EXPECT_EQ(take(), "");
  log_.mapping().header().compares = 0;
  call(1, 13);
  EXPECT_EQ(take(), "");
}

TEST_F(NewCallsTest, AnEntryThatIsBeingWrittenIsReadLater) {
  const uint64_t entry = call(1, 11);
  call(2, 12);
  log_.mapping().entry(entry).sequence = 2 * entry + 1;
  EXPECT_EQ(take(), "");
  log_.mapping().entry(entry).sequence = 2 * entry + 2;
  EXPECT_EQ(take(), "7: #1 11, 7: #2 12");
}

TEST_F(NewCallsTest, CallsOfAnEarlierGroupAreNotThoseOfTheOneInItsPlace) {
  call(1, 11);
  log_.remove_group(group_);
  ASSERT_EQ(log_.add_group("0", {0, 1}, 0, 0), group_);
  EXPECT_EQ(take(), "");  // it is not connected yet
  call(1, 12);
  connect(group_, 8);
  call(1, 13);
  EXPECT_EQ(take(), "8: #1 13");
}

TEST_F(NewCallsTest, AReaderThatIsLateHasTheNewest) {
  for (int64_t seq = 1; seq <= kEntryCapacity + 3; ++seq) call(seq, static_cast<uint64_t>(seq));
  EXPECT_EQ(take().substr(0, 8), "7: #4 4,");
}

TEST_F(NewCallsTest, ACallIsFoundByItsNumber) {
  call(1, 11);
  call(2, 12);
  const auto found = find_call(calls_.log(), 7, 2, 10);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->signature, 12);
  EXPECT_EQ(found->call.seq, 2);
  EXPECT_EQ(found->recent.size(), 2);
  EXPECT_FALSE(find_call(calls_.log(), 7, 3, 10));
  EXPECT_FALSE(find_call(calls_.log(), 8, 2, 10));
  EXPECT_EQ(ranks_of(calls_.log(), 7), (std::vector<int>{0, 1}));
  EXPECT_TRUE(ranks_of(calls_.log(), 8).empty());
}

}  // namespace
}  // namespace lockstep::dist
