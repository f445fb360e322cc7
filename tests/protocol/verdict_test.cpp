#include "protocol/verdict.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>

namespace lockstep {
namespace {

template <typename T>
std::set<std::string_view> words_up_to(T last) {
  std::set<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(last); ++i) words.insert(to_string(static_cast<T>(i)));
  return words;
}

TEST(Verdict, WordsOfTheJsonStay) {
  const std::set<std::string_view> verdicts = {
      "ok",   "mismatch",      "missing",        "shape_mismatch", "dtype_mismatch", "order_mismatch", "op_mismatch",
      "nan",  "inf",           "outlier",        "unused",         "stale",          "hang",           "straggler",
      "dead", "diverged_seed", "duplicate_data", "uneven_data",    "unsupported"};
  EXPECT_EQ(words_up_to(Verdict::unsupported), verdicts);
  EXPECT_EQ(to_string(Verdict::ok), "ok");
  EXPECT_EQ(to_string(Verdict::op_mismatch), "op_mismatch");
  EXPECT_EQ(to_string(Verdict::hang), "hang");
  EXPECT_EQ(to_string(Verdict::unsupported), "unsupported");
  EXPECT_EQ(from_string<Verdict>("op_mismatch"), Verdict::op_mismatch);
  EXPECT_THROW(from_string<Verdict>("fine"), nlohmann::json::exception);
}

TEST(FindingKind, EveryEnumeratorHasItsWord) {
  EXPECT_EQ(words_up_to(FindingKind::communicator).size(), static_cast<size_t>(FindingKind::communicator) + 1);
  EXPECT_EQ(to_string(FindingKind::call), "call");
  EXPECT_EQ(to_string(FindingKind::micro_batch), "micro_batch");
  EXPECT_EQ(to_string(FindingKind::order), "order");
  EXPECT_EQ(to_string(FindingKind::rank), "rank");
  EXPECT_EQ(to_string(FindingKind::update), "update");
  EXPECT_EQ(to_string(FindingKind::optimizer), "optimizer");
  EXPECT_EQ(to_string(FindingKind::finished), "finished");
  EXPECT_EQ(to_string(FindingKind::outside_group), "outside_group");
  EXPECT_EQ(to_string(FindingKind::blocked), "blocked");
}

}  // namespace
}  // namespace lockstep
