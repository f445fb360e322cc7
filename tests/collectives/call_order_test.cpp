// The same calls in another order, and calls that are merely different.
#include "collectives/log/call_order.h"

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

std::vector<CollectiveRecord> on_lines(const std::string& letters, const std::vector<uint64_t>& lines) {
  auto records = calls(letters);
  for (size_t i = 0; i < records.size(); ++i) records[i].call_site = lines[i];
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

TEST(CallOrder, OneEarlierTurnIsEnoughWhereTheCallsStandOnDifferentLines) {
  const auto order =
      order_mismatch(on_lines("caba", {9, 4, 5, 4}), on_lines("cabb", {9, 4, 5, 5}), "default", 4, OrderProof::lines);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->before, 2);
  EXPECT_TRUE(order_mismatch(on_lines("aba", {4, 5, 4}), on_lines("abb", {4, 5, 5}), "default", 3, OrderProof::lines));
  EXPECT_FALSE(order_mismatch(on_lines("aba", {4, 5, 4}), on_lines("abb", {4, 5, 5}), "default", 3)) << "two turns";
}

TEST(CallOrder, AnotherShapeInOneLineIsNoOrder) {
  // The last batch of an epoch is smaller, and in the next epoch one rank's first batch is.
  EXPECT_FALSE(order_mismatch(on_lines("aba", {4, 4, 4}), on_lines("abb", {4, 4, 4}), "default", 3, OrderProof::lines));
  EXPECT_FALSE(order_mismatch(on_lines("aba", {4, 5, 4}), on_lines("abb", {4, 5, 4}), "default", 3, OrderProof::lines))
      << "the first line of both, with the other's shape on one rank";
  EXPECT_FALSE(order_mismatch(calls("caba"), calls("cabb"), "default", 4, OrderProof::lines))
      << "lines that are not known";
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
