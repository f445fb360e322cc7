// The exception that ended a cell, or the signal that ended the rank, as data.
#pragma once
#include <optional>

#include "protocol/finding.h"
#include "protocol/worker_messages.h"
#include "worker/cell/symbols.h"
#include "worker/interpose/crash.h"

namespace lockstep::worker {

struct CaughtError {
  protocol::CellError error;
  bool interrupted = false;        // it is lockstep::Interrupted
  bool aborted = false;            // it is a collective that was aborted here
  std::optional<Finding> finding;  // that it carries: ranks called different collectives
};

/// The exception being handled. Inside a catch block.
CaughtError describe_current_exception(Symbols& symbols);

protocol::CellError describe_death(const DeathReport& report, Symbols& symbols);

}  // namespace lockstep::worker
