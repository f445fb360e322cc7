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

/// The judgement of a cell, by its tags and its outcome.
struct CellJudgement {
  bool failed = false;  // the status is not ok and was not expected, or it is not the expected one
  int exit_code = kExitOk;
  int faults = 0;  // that were not expected
  std::vector<std::string> complaints;  // what was expected and did not come, for people
};

/// `lost_ranks`: ranks that died in this cell, or since the one before.
CellJudgement judge(const std::vector<Tag>& tags, const CellOutcome& outcome, const RankSet& lost_ranks);

/// Returns the exit code of what had gone wrong when the cell was interrupted. It is kExitOk where nothing had, or
/// where something expected was still to come. `before` are the ranks that lived when the cell began.
int code_before_interrupt(const std::vector<Tag>& tags, const BeforeInterrupt& at, const RankSet& before);

}  // namespace lockstep::shell
