// A reference of one process with perturbed runs, and a judge of candidates.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compare_runs.h"
#include "inspectors/compare/judge.h"

namespace lockstep::inspect::compare {

class CompareJudge : public ::testing::Test {
 protected:
  void SetUp() override {
    reference_ = made_up_run(folder_.in("reference"), {}, true);
    for (int i = 1; i <= 4; ++i)
      perturbed_.push_back(
          made_up_run(folder_.in("perturbed-" + std::to_string(i)), {.noise = static_cast<double>(i)}));
  }

  Comparison compared(const MadeUpLayout& layout) {
    candidate_ = made_up_run(folder_.in("candidate"), layout);
    return judge(reference_, perturbed_, candidate_);
  }
  /// Returns the fault of a candidate.
  Finding fault_of(const MadeUpLayout& layout) {
    const Comparison result = compared(layout);
    EXPECT_FALSE(result.findings.empty());
    if (result.findings.empty()) return {};
    EXPECT_EQ(result.findings.front().severity, Severity::fault) << result.findings.front().message;
    EXPECT_EQ(std::ranges::count(result.findings, Severity::fault, &Finding::severity), 1);
    return result.findings.front();
  }

  CompareFolder folder_;
  compare::Run reference_, candidate_;
  std::vector<compare::Run> perturbed_;
};

}  // namespace lockstep::inspect::compare
