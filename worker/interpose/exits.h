// The ends of the process that are function calls.
#pragma once

namespace lockstep::worker {

/// Tells the hub that something called `function`, where it was not the worker itself, and waits until it is told.
void report_exit(const char* function, int code);

/// The code that the process ends with once everything registered with atexit has run.
void set_exit_code(int code);

/// The worker's own end: destructors and atexit handlers run, nothing is reported.
[[noreturn]] void exit_quietly(int code);

}  // namespace lockstep::worker
