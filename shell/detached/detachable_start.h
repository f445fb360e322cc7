// Starts a detachable session and its keeper (keeper.h).
#pragma once
#include <chrono>

#include "protocol/descriptor.h"
#include "shell/detached/messages.h"

namespace lockstep::shell {

/// Says which of three processes this is.
struct DetachableStart {
  Descriptor keeper;  // in the session: to its keeper. Descriptors 0 to 2 are its terminal
  Descriptor terminal;  // in the process that was started: to the keeper, for run_attached()
  bool is_over = false;  // in the keeper: the session has ended
};

/// Starts keeper and session as copies of this process, which has one thread and a terminal as standard input and output.
/// The session waits `time` for somebody to come back. `hello` is from this terminal. Throws StartError.
DetachableStart start_detachable(std::chrono::seconds time, const TerminalHello& hello);

}  // namespace lockstep::shell
