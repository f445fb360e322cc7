// Describes the exception that ended a cell, as data.
#pragma once
#include <optional>

#include "protocol/finding.h"
#include "protocol/worker_messages.h"
#include "worker/cell/symbols.h"

namespace lockstep::worker {

struct CaughtError {
  protocol::CellError error;
  bool interrupted = false;        // it is lockstep::Interrupted
  bool aborted = false;            // it is a collective that was aborted here
  std::optional<Finding> finding;  // that it carries: ranks called different collectives
};

/// Describes the exception being handled. Called inside a catch block.
CaughtError describe_current_exception(Symbols& symbols);

/// Fills in the stack, and the innermost line of a cell on it; where it has none, the step that runs.
void set_place(protocol::CellError& error, std::vector<Frame> frames, Symbols& symbols);

/// Returns the C++ with which operators of this thread record gradients again; empty where they do.
const char* how_to_record_gradients();

}  // namespace lockstep::worker
