// The same calls in another order, and calls that are merely different.
#include "dist/call_order.h"

#include <gtest/gtest.h>

namespace lockstep::dist {
namespace {

/// 'a' is an all_reduce of one element, 'b' of two, …; numbers from 1.
std::vector<CollectiveRecord> calls(const std::string& letters, int64_t first = 1) {
  std::vector<CollectiveRecord> records;
  for (const char letter : letters) {
    CollectiveRecord record;
    record.group = "default";
    record.seq = first++;
    record.op = "all_reduce";
    record.dtype = "float32";
    record.shape = {letter - 'a' + 1};
    record.tensor_count = 1;
    records.push_back(record);
  }
  return records;
}

TEST(CallOrder, EachCalledWhatTheOtherCalledNext) {
  const auto order = order_mismatch(calls("ab"), calls("ba"), "default", 1);
  ASSERT_TRUE(order);
  EXPECT_TRUE(order->swapped);
}

TEST(CallOrder, TheUsualOrderShowsWhoIsEarly) {
  const auto order = order_mismatch(calls("ababa"), calls("ababb"), "default", 5);
  ASSERT_TRUE(order);
  EXPECT_FALSE(order->swapped);
  EXPECT_EQ(order->before, 3);
  EXPECT_FALSE(order_mismatch(calls("ababb"), calls("ababa"), "default", 5)) << "after b comes a";
}

TEST(CallOrder, OtherCallsAreNoOrder) {
  EXPECT_FALSE(order_mismatch(calls("a"), calls("b"), "default", 1));
  EXPECT_FALSE(order_mismatch(calls("cca"), calls("ccb"), "default", 3));
  EXPECT_FALSE(order_mismatch(calls("aa"), calls("aa"), "default", 2)) << "equal";
  EXPECT_FALSE(order_mismatch(calls("ab"), calls("ba"), "group_1", 1)) << "another group";
  EXPECT_FALSE(order_mismatch(calls("ab", 7), calls("ba", 7), "default", 1)) << "records that are not there";
}

}  // namespace
}  // namespace lockstep::dist
