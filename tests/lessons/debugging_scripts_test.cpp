// The scripts under scripts/debugging: that they find their culprit, on the ranks that are to blame, and go on after
// it.
#include <gtest/gtest.h>

#include "tests/lessons/script_run.h"

namespace lockstep::test {
namespace {

void expect_drift_found(int ranks) {
  const auto run = run_script("debugging/replicas-that-drift.cpp", ranks);
  EXPECT_EQ(run.exit_code, 0) << run.shown;
  const auto errors = run.of("train, and look after every step", "error");
  ASSERT_EQ(errors.size(), 1u);
  const auto message = errors[0].at("message").get<std::string>();
  EXPECT_NE(message.find("the replicas part at step"), std::string::npos) << message;
  EXPECT_NE(message.find("0.weight"), std::string::npos) << message;
  EXPECT_TRUE(run.of("the fix: all ranks judge by the mean loss", "error").empty());
}

TEST(ReplicasThatDrift, AreFoundOnTwoRanks) { expect_drift_found(2); }
TEST(ReplicasThatDrift, AreFoundOnFourRanks) { expect_drift_found(4); }

void expect_hang_found(int ranks, const nlohmann::json& missing) {
  const auto run = run_script("debugging/a-rank-that-skips-a-collective.cpp", ranks);
  EXPECT_EQ(run.exit_code, 0) << run.shown;
  const auto findings = run.of("one pass over the data", "finding");
  ASSERT_FALSE(findings.empty()) << run.shown;
  const auto& last = findings.back();  // ranks may leave one after the other: then the set grows
  EXPECT_EQ(last.at("inspector"), "hang");
  EXPECT_EQ(last.at("verdict"), "hang");
  EXPECT_EQ(last.at("ranks"), missing);
  EXPECT_EQ(last.at("op").at("name"), "all_reduce");
  for (const auto& error : run.of("one pass over the data", "error")) EXPECT_FALSE(error.at("root_cause"));
  EXPECT_TRUE(run.of("the fix: as many steps as all ranks have", "error").empty());
  EXPECT_EQ(run.of("the fix: as many steps as all ranks have", "cell").at(0).at("status"), "ok");
}

// Ranks with fewer batches than the others leave first; on four ranks, all but rank 2.
TEST(ARankThatSkipsACollective, IsNamedOnTwoRanks) { expect_hang_found(2, ranks({1})); }
TEST(ARankThatSkipsACollective, IsNamedOnFourRanks) { expect_hang_found(4, ranks({0, 1, 3})); }

TEST(TheTwoByTwoRun, IsTheSameButForOneSum) {
  const auto run = run_script("debugging/the-2-by-2-run-that-is-not-the-same.cpp", 4);
  EXPECT_EQ(run.exit_code, 0) << run.shown;
  const auto same = run.of("two by two", "finding"), other = run.of("without the sum in backward", "finding");
  ASSERT_FALSE(same.empty()) << run.shown;
  EXPECT_NE(same[0].at("message").get<std::string>().find("same training: "), std::string::npos) << same[0];
  ASSERT_FALSE(other.empty()) << run.shown;
  const auto message = other[0].at("message").get<std::string>();
  EXPECT_NE(message.find("step 0: the gradient of norm.weight on ranks 0-3"), std::string::npos) << message;
  EXPECT_NE(message.find("it was not reduced over ranks 0-1, which work on the same samples"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace lockstep::test
