// Findings of several ranks as one, with times as numbers: what is one, and that nobody waits for a rank that is stuck.
#include "shell/events/finding_merger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Finding found_by(int rank, int64_t step = 3, const std::string& tensor = "fc1.weight") {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "nan";
  finding.verdict = Verdict::nan;
  finding.kind = FindingKind::backward;
  finding.cell = 7;
  finding.step = step;
  finding.ranks = {rank};
  finding.tensors.push_back({.name = tensor, .dtype = "float32", .shape = {2, 3}, .count = 10 + rank, .first = {}});
  set_message_with_ranks(finding, tensor + " became NaN");
  return finding;
}

struct FindingMergerTest : testing::Test {
  std::vector<Finding> reported;
  FindingMerger merger{[this](Finding finding) { reported.push_back(std::move(finding)); }};
  FindingMerger::Clock::time_point at(int ms) { return FindingMerger::Clock::time_point(milliseconds(ms)); }
  void add(const Finding& finding, int from, const RankSet& may_follow, int ms = 0) {
    merger.add(finding, from, may_follow, at(ms));
  }
  std::vector<std::string> messages() const {
    std::vector<std::string> result;
    for (const Finding& each : reported) result.push_back(each.message);
    return result;
  }
};

TEST_F(FindingMergerTest, WhatAllRanksFindIsOneFinding) {
  add(found_by(2), 2, {0, 1, 2});
  add(found_by(0), 0, {0, 1, 2});
  EXPECT_THAT(reported, IsEmpty());
  add(found_by(1), 1, {0, 1, 2});
  ASSERT_THAT(messages(), ElementsAre("on ranks 0-2 fc1.weight became NaN"));
  EXPECT_EQ(reported[0].ranks, (RankSet{0, 1, 2}));
  EXPECT_EQ(reported[0].tensors.at(0).count, 10);  // the lowest rank's
  EXPECT_EQ(reported[0].subject, "");
  EXPECT_FALSE(merger.deadline());
}

TEST_F(FindingMergerTest, WhoHasLeftIsNotWaitedFor) {
  add(found_by(1), 1, {0, 1, 2});
  merger.left(0);
  EXPECT_THAT(reported, IsEmpty());
  merger.left(2);
  EXPECT_THAT(messages(), ElementsAre("on rank 1 fc1.weight became NaN"));
}

TEST_F(FindingMergerTest, WhoIsAloneInTheCellIsToldAtOnce) {
  add(found_by(1), 1, {1});
  add(found_by(1, 4), 1, {});
  EXPECT_EQ(reported.size(), 2U);
}

TEST_F(FindingMergerTest, NobodyWaitsForLongForARankThatIsStuck) {
  add(found_by(0), 0, {0, 1}, 100);
  EXPECT_EQ(merger.deadline(), at(100) + FindingMerger::kHold);
  merger.due(at(99) + FindingMerger::kHold);
  EXPECT_THAT(reported, IsEmpty());
  merger.due(at(100) + FindingMerger::kHold);
  EXPECT_THAT(messages(), ElementsAre("on rank 0 fc1.weight became NaN"));
  add(found_by(1), 1, {1}, 9000);
  EXPECT_EQ(reported.size(), 2U);
}

TEST_F(FindingMergerTest, OtherStepsTensorsAndCausesAreOthers) {
  add(found_by(0, 3), 0, {0, 1});
  add(found_by(1, 4), 1, {0, 1});
  add(found_by(1, 3, "fc2.weight"), 1, {0, 1});
  Finding inf = found_by(1, 3);
  inf.verdict = Verdict::inf;
  add(inf, 1, {0, 1});
  Finding other = found_by(1, 3);
  other.message += " in another way";
  add(other, 1, {0, 1});
  EXPECT_THAT(reported, IsEmpty());
  merger.flush();
  EXPECT_THAT(messages(), ElementsAre("on rank 0 fc1.weight became NaN", "on rank 1 fc1.weight became NaN",
                                      "on rank 1 fc2.weight became NaN", "on rank 1 fc1.weight became NaN",
                                      "on rank 1 fc1.weight became NaN in another way"));
}

TEST_F(FindingMergerTest, WhatARankFindsTwiceIsTwoFindings) {
  add(found_by(0), 0, {0, 1});
  add(found_by(0), 0, {0, 1});
  add(found_by(1), 1, {0, 1});
  merger.flush();
  EXPECT_THAT(messages(), ElementsAre("on ranks 0-1 fc1.weight became NaN", "on rank 0 fc1.weight became NaN"));
}

TEST_F(FindingMergerTest, WhatIsNotAboutTheRankItselfGoesOutAtOnce) {
  Finding compared = found_by(0);
  compared.subject.clear();
  add(compared, 0, {0, 1});
  add(found_by(1), 0, {0, 1});  // of another rank
  add(found_by(1), -1, {0, 1});  // by the session
  Finding of_all = found_by(0);
  of_all.ranks = {0, 1};
  add(of_all, 0, {0, 1});
  EXPECT_EQ(reported.size(), 4U);
}

}  // namespace
}  // namespace lockstep::shell
