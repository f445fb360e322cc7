// Whether a run is the same training as the reference, and if not, the first value that is not the reference's, in the
// order of execution. After the first difference most values differ, so that one is what is reported.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/compare/runs.h"
#include "inspectors/compare/tolerance.h"
#include "protocol/finding.h"

namespace lockstep::inspect::compare {

class ReplacementWriter;

struct JudgeOptions {
  double factor = kRoundingFactor;
  /// Relative: what may differ where the reference has no perturbed runs.
  std::optional<double> rtol = std::nullopt;
  /// Is given what each value should be.
  ReplacementWriter* writer = nullptr;
  /// The run of the candidate whose values were replaced once they were recorded. There every difference is reported.
  const Run* replacements = nullptr;
};

/// What was found, in numbers; the findings say the same in words.
struct Comparison {
  int64_t steps = 0;  // that were compared
  size_t compared = 0;  // pieces
  size_t differing = 0;
  double largest = 0;  // of differences in units of the tolerance, of pieces that are the same
  std::string unit;  // what the tolerance is, in words; empty: there is none, and the sketches' bits are compared
  // Values that were not compared, by name. Those of the second are not the candidate's, or not of all of its ranks.
  std::vector<std::string> says_nothing, not_recorded, only_in_candidate;
  bool is_replaced = false;  // the candidate's values were replaced once they were recorded
  std::vector<std::string> not_replaced;  // but for these, which differ: what comes after them may follow from them
  bool has_silent_loss = false;  // a loss says nothing: the perturbed runs are other trainings
  bool is_same = false;  // all that either has recorded in these steps is the same, but for what says nothing
  /// One fault at most, unless values were replaced; notes; or one that says that all is the same.
  std::vector<Finding> findings;
};

/// Compares a candidate of any layout with a reference of one process that has values. Throws Error for runs that can't be
/// compared: other kinds of runs, no step that both have ended, no values, several ranks whose samples are not known.
Comparison judge(const Run& reference, const std::vector<Run>& perturbed, const Run& candidate,
                 const JudgeOptions& options = {});

/// Compares two runs of one layout, piece by piece. Throws Error where they are of different numbers of ranks.
Comparison judge_same_layout(const Run& reference, const Run& candidate, const JudgeOptions& options = {});

}  // namespace lockstep::inspect::compare
