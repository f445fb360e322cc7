// Exit codes, and what was expected.
#include <gtest/gtest.h>

#include "shell/session/outcome.h"

namespace lockstep::shell {
namespace {

Finding fault(const std::string& inspector, Verdict verdict) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = inspector;
  finding.verdict = verdict;
  return finding;
}

CellOutcome outcome(CellStatus status, std::vector<Finding> findings = {}) {
  CellOutcome result;
  result.cell = 1;
  result.status = status;
  result.findings = std::move(findings);
  return result;
}

int code(const CellOutcome& outcome, std::vector<Tag> tags = {}, const RankSet& lost = {}) {
  return judge(tags, outcome, lost).exit_code;
}

const Tag kRaises{"raises-exception", ""};

TEST(Outcome, StatusesHaveCodes) {
  EXPECT_EQ(code(outcome(CellStatus::ok)), 0);
  EXPECT_EQ(code(outcome(CellStatus::error)), 1);
  EXPECT_EQ(code(outcome(CellStatus::compile_error)), 1);
  EXPECT_EQ(code(outcome(CellStatus::usage_error)), 2);
  EXPECT_EQ(code(outcome(CellStatus::timeout)), 4);
  EXPECT_EQ(code(outcome(CellStatus::dead)), 5);
  EXPECT_EQ(code(outcome(CellStatus::interrupted)), 130);
}

TEST(Outcome, FaultsFailNotesDoNot) {
  EXPECT_EQ(code(outcome(CellStatus::ok, {fault("verify", Verdict::mismatch)})), 1);
  Finding note = fault("verify", Verdict::ok);
  note.severity = Severity::note;
  EXPECT_EQ(code(outcome(CellStatus::ok, {note})), 0);
  EXPECT_FALSE(judge({}, outcome(CellStatus::ok, {fault("verify", Verdict::mismatch)}), {}).failed)
      << "a fault leaves its cell's status alone";
}

TEST(Outcome, HangsByTheirCause) {
  EXPECT_EQ(code(outcome(CellStatus::aborted, {fault("hang", Verdict::hang)})), 4);
  EXPECT_EQ(code(outcome(CellStatus::error, {fault("hang", Verdict::hang)})), 1);
  EXPECT_EQ(code(outcome(CellStatus::dead, {fault("hang", Verdict::hang)})), 5);
}

TEST(Outcome, ExpectedThingsDoNotCount) {
  EXPECT_EQ(code(outcome(CellStatus::error), {kRaises}), 0);
  EXPECT_EQ(code(outcome(CellStatus::dead), {kRaises}), 0);
  EXPECT_EQ(
      code(outcome(CellStatus::ok, {fault("verify", Verdict::mismatch)}), {{"expects-finding", "verify:mismatch"}}), 0);
  EXPECT_EQ(code(outcome(CellStatus::ok, {fault("verify", Verdict::mismatch)}), {{"expects-finding", ""}}), 0);
  EXPECT_EQ(code(outcome(CellStatus::aborted, {fault("hang", Verdict::hang)}), {{"expects-finding", "hang:hang"}}), 0);
}

TEST(Outcome, ADeathThatIsExpectedNeedsNoRankThatWaitsForIt) {
  const Tag death{"expects-finding", "hang:dead"};
  const auto verdict = judge({death}, outcome(CellStatus::dead), {1});
  EXPECT_FALSE(verdict.failed);
  EXPECT_EQ(verdict.exit_code, 0);
  EXPECT_EQ(code(outcome(CellStatus::dead, {fault("hang", Verdict::dead)}), {death}, {1}), 0);
  EXPECT_EQ(code(outcome(CellStatus::ok), {death}), 1);
}

TEST(Outcome, WhatWasExpectedAndDidNotComeIsAFailure) {
  const auto verdict = judge({kRaises}, outcome(CellStatus::ok), {});
  EXPECT_TRUE(verdict.failed);
  EXPECT_EQ(verdict.exit_code, 1);
  EXPECT_EQ(verdict.complaints.size(), 1u);
  EXPECT_EQ(code(outcome(CellStatus::ok), {{"expects-finding", "verify:mismatch"}}), 1);
  EXPECT_EQ(
      code(outcome(CellStatus::ok, {fault("grads", Verdict::mismatch)}), {{"expects-finding", "verify:mismatch"}}), 1);
}

TEST(Outcome, WhatWasNotMeantStaysAFailure) {
  EXPECT_EQ(code(outcome(CellStatus::interrupted), {kRaises}), 130);
  EXPECT_EQ(code(outcome(CellStatus::usage_error), {kRaises}), 2);
  EXPECT_EQ(code(outcome(CellStatus::error), {{"expects-finding", ""}}), 1);
}

TEST(Outcome, ADeathBetweenCells) { EXPECT_EQ(code(outcome(CellStatus::ok), {}, {1}), 5); }

}  // namespace
}  // namespace lockstep::shell
