// The cells that a process in the place of a lost rank has run again.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"

namespace lockstep::shell {

/// A step that does not run again, and why.
struct LeftOutStep {
  int64_t number = 0;  // of the cell
  int line = 0;
  std::string why;
};

/// A cell that did not end well as it ran again.
struct FailedAgain {
  int64_t number = 0;
  protocol::CellError error;
};

struct RestartedRank {
  bool is_new = false;  // no rank had its number before
  int cells = 0;  // that have run again
  std::vector<FailedAgain> failures;  // of them
  std::vector<LeftOutStep> left_out;
  RankSet cells_without_it;  // numbers of cells that ran on other ranks meanwhile
  int64_t output_bytes = 0;  // that were left out
};

}  // namespace lockstep::shell
