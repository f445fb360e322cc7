// Finds out how many processes and threads this user may have (ulimit -u, the pids limit of a container) before it
// matters: where a thread can't be started ZeroMQ aborts the program, and LibTorch the rank.
#pragma once
#include <string>

namespace lockstep::shell {

/// Starts `count` threads at once, and ends them. Throws StartError where there can't be as many: `what` begins the
/// message ("a session of 2 ranks"), which names the limit and says how to raise it.
void require_threads(int count, const std::string& what);

}  // namespace lockstep::shell
