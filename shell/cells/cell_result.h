// How a cell and its parts ended.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/finding.h"
#include "protocol/rank_set.h"
#include "protocol/status.h"

namespace lockstep::shell {

/// How C++ that a magic had run ended, as %time prints it. The outcome of the cell around it includes it.
struct CodeResult {
  CellStatus status = CellStatus::ok;
  RankSet ranks;
  double compile_ms = 0;
  std::map<int, double> run_ms;  // per rank that ran it
  std::map<int, CellStatus> rank_status;
  std::string compiler_messages;  // all of them
  RankSet out_of_memory;  // ranks on which an allocation has failed
};

/// What had gone wrong with a cell, or before it, when the user interrupted it.
struct BeforeInterrupt {
  CellStatus status = CellStatus::ok;  // of the cell
  std::vector<Finding> findings;
  RankSet live;  // ranks
};

/// How a cell ended, for exit codes, and for `run`, which decides by it whether to go on.
struct CellOutcome {
  int64_t cell = 0;  // 0 for a cell of magics alone, and for markdown
  CellStatus status = CellStatus::ok;
  std::vector<Finding> findings;
  bool exit_requested = false;  // a magic or Ctrl-D asked to leave
  std::optional<BeforeInterrupt> before_interrupt;  // where it was interrupted
};

}  // namespace lockstep::shell
