// The session starts this process: it receives the session's requests, passes them to state processes, and replaces
// those that end. It has read no header, runs no parser, and stays small; everything that a cell does to the compiler
// happens in a copy.
//
//   current    the state after the last cell that was settled
//   spares     copies of it that wait, so that a cell does not wait for the fork
//   candidate  the spare that has compiled a cell, until the session says whether the ranks have loaded it
//   practising a copy that compiles a typical training while no request comes, and is the current state afterwards
#pragma once
#include "compiler/process/options.h"

namespace lockstep::compiler {

/// Serves the channel until the session closes it. Returns the exit code.
int supervise(const Options& options);

}  // namespace lockstep::compiler
