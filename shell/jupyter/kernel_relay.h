// A kernel whose cells run in a detachable session (shell/detached/keeper.h), which was started at a terminal. The process that
// Jupyter starts has the kernel's sockets and passes messages on; the session runs them as its own kernel would.
//
//   Jupyter ──ZeroMQ── this process ──stream socket── session       (session_channels.h, open_notebook())
//                            └─────── keeper ────────────┘
//
// A restart or an end of this process leaves the session as a lost terminal does. While this process does not have the
// session (a terminal has taken it, it has ended), cells are answered with an error that says so; each tries to get it
// again, unless somebody else is there.
#pragma once
#include <string>

namespace lockstep::shell::jupyter {

struct RelayOptions {
  std::string id;  // of the session, as for lockstep --resume
  bool takes_over = false;  // at the start, from a terminal or another notebook
  std::string connection_file;  // empty: one is made, and its path printed
};

/// Serves until a frontend, a signal, the end of the process that started it, or an `exit` in a cell ends it. Returns the
/// exit code. Throws UsageError for a bad connection file, StartError where it can't listen. Without a connection file it also
/// throws where the session can't be had.
int run_kernel_relay(const RelayOptions& options);

}  // namespace lockstep::shell::jupyter
