// Sends the last words of a rank. A fatal signal, or a cell that calls exit, leaves a report here and wakes the I/O
// thread, which tells the hub which cell, which line and why; then the process ends as it would have ended. The dying
// thread waits for that with a limit, so that nothing holds up the end for long.
#pragma once
#include <signal.h>

#include <cstdint>
#include <string>

#include "worker/process/stack.h"

namespace lockstep::worker {

struct DeathReport {
  int signal = 0;          // 0: a call of exit and its like
  int code = 0;            // si_code, or the exit code
  uintptr_t address = 0;   // that a memory access missed
  bool stack_overflow = false;
  char how[32] = {};       // "exit", "_exit", "quick_exit"
  char message[512] = {};  // what std::terminate was called for
  Stack stack;
};

/// Installs the handlers, and a stack of their own for the calling thread. `event_fd` is written to for each report.
void install_crash_handlers(int event_fd);

/// Returns the report to the I/O thread, once; nullptr while there is none.
const DeathReport* take_death_report();
/// Sets the message for the report of the next SIGABRT.
void set_abort_message(const char* text);
/// Lets the dying thread go on.
void death_reported();

/// Returns one sentence for people: "reads or writes address 0x10, where there is nothing".
std::string describe(const DeathReport& report);

/// Notes that the coming exit needs no report: it has been reported already, or the worker itself wants it.
void expect_exit();

}  // namespace lockstep::worker
