// A detachable session runs on a pseudo-terminal. Its keeper is the process that holds the other side, and passes what is
// typed and drawn between it and the terminal of a person, who may lose that terminal and come back with another one. It
// has no part in the session beyond that: cells, ranks and the prompt are where they are without it.
//
//   lockstep --detachable ──socket── keeper ──pseudo-terminal── session ── ranks, compiler
//   (terminal.h, may die)            │ ID.terminal              (as without it)
//   lockstep --resume ID ───────────┘
//
// Who owns whom: the session ends by SIGHUP when its keeper does, as it does with any terminal that is lost. The keeper
// ends when its session does, and ends it (SIGHUP) when nobody has come back in time.
#pragma once
#include <chrono>
#include <optional>

#include "protocol/descriptor.h"
#include "shell/detached/messages.h"

namespace lockstep::shell {

/// Which of three processes this is.
struct DetachableStart {
  Descriptor keeper;  // in the session: to its keeper. Descriptors 0 to 2 are its terminal
  Descriptor terminal;  // in the process that was started: to the keeper, for run_attached()
  bool is_over = false;  // in the keeper: the session has ended
};

/// Starts keeper and session as copies of this process, which has one thread and a terminal as standard input and output.
/// The session waits `time` for somebody to come back. `hello` is from this terminal. Throws StartError.
DetachableStart start_detachable(std::chrono::seconds time, const TerminalHello& hello);

}  // namespace lockstep::shell
