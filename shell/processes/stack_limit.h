// Makes room for the stacks of the session's programs. LibTorch, the compiler and cells are written for the usual 8 MB;
// with `ulimit -s 256` they die of SIGSEGV in places that say nothing about the cause.
#pragma once
#include <string>

namespace lockstep::shell {

/// Raises this process's limit, and that of the programs it starts, to 8 MB where it is lower and the system allows it.
void raise_stack_limit();

/// Says what is short, and how to set it: "the stack is limited to 256 kB: ulimit -s 8192 …"; empty where it suffices.
std::string stack_shortage();

}  // namespace lockstep::shell
