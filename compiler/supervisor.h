// The process that the session knows: takes its requests, hands them to state processes, and watches over these. It has
// read no header, runs no parser, and stays small; whatever a cell does to the compiler, it happens in a copy.
//
//   current    the state after the last cell that was settled
//   spares     copies of it that wait: forked ahead, so that a cell does not wait for the fork
//   candidate  the spare that has compiled a cell, until the session says whether the ranks have loaded it
#pragma once
#include "compiler/process/options.h"

namespace lockstep::compiler {

/// Serves the channel until the session closes it. Returns the exit code.
int supervise(const Options& options);

}  // namespace lockstep::compiler
