// Judges whether a run is the same training as the reference. If it is not, the first value that differs, in the order
// of execution, is reported: after it most values differ.
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
  /// The relative tolerance where the reference has no perturbed runs.
  std::optional<double> rtol = std::nullopt;
  /// Receives what each value should be; may be null.
  ReplacementWriter* writer = nullptr;
  /// The replacements of the candidate's values, where each was replaced once it was recorded; else null. With them,
  /// every difference is reported.
  const Run* replacements = nullptr;
};

/// What was found, in numbers; the findings say the same in words.
struct Comparison {
  int64_t steps = 0;  // that were compared
  size_t compared = 0;  // pieces
  size_t differing = 0;
  double largest = 0;  // of differences in units of the tolerance, of pieces that are the same
  std::string unit;  // what the tolerance is, in words; empty: there is none, and the sketches' bits are compared
  // Values that were not compared, by name. The candidate, or some rank of it, lacks those of not_recorded.
  std::vector<std::string> says_nothing, not_recorded, only_in_candidate;
  bool is_replaced = false;  // the candidate's values were replaced once they were recorded
  std::vector<std::string> not_replaced;  // differing values that were not: later differences may follow from them
  bool has_silent_loss = false;  // a loss says nothing: the perturbed runs are other trainings
  bool is_same = false;  // all that either has recorded in these steps is the same, but for says_nothing
  /// One fault at most, unless values were replaced; notes; or an `ok` where all is the same.
  std::vector<Finding> findings;
};

/// Compares a candidate of any layout with a reference of one process that has values. Throws Error for runs that can't
/// be compared: other kinds of runs, no step that both have ended, no values, several ranks whose samples are unknown.
Comparison judge(const Run& reference, const std::vector<Run>& perturbed, const Run& candidate,
                 const JudgeOptions& options = {});

/// Compares two runs of one layout, piece by piece. Throws Error where they are of different numbers of ranks.
Comparison judge_same_layout(const Run& reference, const Run& candidate, const JudgeOptions& options = {});

}  // namespace lockstep::inspect::compare
