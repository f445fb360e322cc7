// Judges how a script ends: what was expected of a cell and did not come, and the exit code that follows from the first
// thing that went wrong. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "protocol/finding.h"
#include "shell/cells/cell_result.h"
#include "shell/events/exit_code.h"
#include "shell/scripts/script.h"

namespace lockstep::shell {

/// Holds what a cell's tags and its outcome come to.
struct CellJudgement {
  bool failed = false;  // the cell's status is other than ok and was not expected, or it should have been other
  int exit_code = kExitOk;
  int faults = 0;  // that were not expected
  std::vector<std::string> complaints;  // expected and not come, for people
};

/// `lost_ranks`: ranks that died in this cell, or since the one before.
CellJudgement judge(const std::vector<Tag>& tags, const CellOutcome& outcome, const RankSet& lost_ranks);

/// Returns the exit code of what had gone wrong when the cell was interrupted; kExitOk: nothing. What is expected may
/// still have come. `before` are the ranks that lived when the cell began.
int code_before_interrupt(const std::vector<Tag>& tags, const BeforeInterrupt& at, const RankSet& before);

}  // namespace lockstep::shell
