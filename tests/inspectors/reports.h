// What tests read from reports and findings.
#pragma once
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"

namespace lockstep::inspect {

/// The one finding of a report; another number of findings fails the test. For an empty report, a finding with a tensor
/// and an operator, so that the test can go on.
inline Finding only_finding(const Report& report) {
  EXPECT_EQ(report.findings.size(), 1U) << report;
  if (!report.findings.empty()) return report.findings.front();
  return {.tensors = {FindingTensor{}}, .op = FindingOp{}};
}

/// The names of the tensors that a finding lists.
inline std::vector<std::string> names(const Finding& finding) {
  std::vector<std::string> result;
  for (const FindingTensor& each : finding.tensors) result.push_back(each.name);
  return result;
}

/// What ranks publish as long as this lives.
class PublishedFindings {
 public:
  PublishedFindings() {
    set_finding_sink([this](const Finding& finding) {
      const std::lock_guard lock(mutex_);
      findings_.push_back(finding);
    });
  }
  PublishedFindings(const PublishedFindings&) = delete;
  PublishedFindings& operator=(const PublishedFindings&) = delete;
  ~PublishedFindings() { set_finding_sink({}); }

  std::vector<Finding> all() const {
    const std::lock_guard lock(mutex_);
    return findings_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Finding> findings_;
};

}  // namespace lockstep::inspect
