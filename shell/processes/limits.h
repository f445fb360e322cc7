// Limits of this user, met before they matter. LibTorch, the compiler and cells are written for a stack of the usual 8 MB;
// with `ulimit -s 256` they die of SIGSEGV in places that say nothing about the cause. Where a thread can't be started
// (ulimit -u, the pids limit of a container) ZeroMQ aborts the program, and LibTorch the rank.
#pragma once
#include <string>

namespace lockstep::shell {

/// Raises this process's limit, and that of the programs it starts, to 8 MB where it is lower and the system allows it.
void raise_stack_limit();

/// Says what is short, and how to set it: "the stack is limited to 256 kB: ulimit -s 8192 …"; empty where it suffices.
std::string stack_shortage();

/// Starts `count` threads at once, and ends them. Throws StartError where there can't be as many: `what` begins the
/// message ("a session of 2 ranks"), which names the limit and says how to raise it.
void require_threads(int count, const std::string& what);

}  // namespace lockstep::shell
