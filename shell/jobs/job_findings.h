// Writes and reads the file of findings of a Python job, as lines of JSON: those that inspectors in its ranks add
// (LOCKSTEP_FINDINGS), and with --findings those of the watch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/finding.h"

namespace lockstep::shell {

/// Counts the faults of inspectors in a file of findings, from a byte on. Returns 0 where it can't be read again: a pipe, a
/// terminal.
int faults_of_inspectors_in(const std::string& path, int64_t begin = 0);

/// Returns the file of the ranks of a job without --findings and LOCKSTEP_FINDINGS.
std::string findings_file(const std::string& folder);

class JobFindings {
 public:
  /// `named` is the file of --findings, which is made if there is none; empty: the ranks have that of
  /// LOCKSTEP_FINDINGS, or one in `folder`, and nothing is added to it here. Throws UsageError.
  JobFindings(const std::string& named, const std::string& folder);

  /// Returns the value of LOCKSTEP_FINDINGS of the ranks.
  const std::string& path() const { return path_; }

  /// Draws findings on standard error, and adds them to the file. `seconds` count from the job's start.
  void report(const std::vector<Finding>& findings, double seconds) const;
  /// Returns how many faults inspectors have added.
  int faults_of_inspectors() const { return faults_of_inspectors_in(path_, begin_); }

 private:
  std::string named_, path_;
  Descriptor file_;  // with `named_`
  int64_t begin_ = 0;  // what it had before the job, in bytes
};

}  // namespace lockstep::shell
