// The kernel is a front end over Session as the terminal is, which takes its cells from Jupyter's frontends. It has a session
// of its own, or it comes to that of a terminal (open_notebook()), from the process that Jupyter has started
// (kernel_relay.h).
//
// One thread. The event loop of the session serves the ranks and the kernel's sockets side by side, so interrupt,
// shutdown and everything else on the control channel is answered while a cell runs (rule 4). Requests of the shell
// channel are answered one after the other.
//
//   queued ─→ being answered ─→ answered      execute, complete, inspect, is_complete, history, comm, kernel_info
//      └────→ aborted                         execute requests after one that failed, where that asks for it
#pragma once
#include <string>

#include "shell/processes/session_options.h"
#include "shell/terminal/notebook.h"

namespace lockstep::shell::jupyter {

struct KernelOptions {
  SessionOptions session;
  bool start_now = false;  // the ranks, rather than with the first cell
  std::string connection_file;  // empty: one is made, and its path printed
};

/// Serves until a frontend, a signal or the end of the process that started it ends the kernel. Returns the exit code.
/// Throws UsageError for a bad connection file or bad options, StartError where it can't listen. That ranks can't start
/// is no such error: the cell that needs them reports it.
int run_kernel(const KernelOptions& options);

/// Makes the kernel that runs cells of a notebook in the session of a terminal, at the session's end of the socket
/// (session_channels.h). `key` signs its messages.
std::shared_ptr<Notebook> open_notebook(const NotebookServices& services, Descriptor socket, const std::string& key);

}  // namespace lockstep::shell::jupyter
