// Handles the ends of the process that are function calls.
#pragma once

namespace lockstep::worker {

/// Reports to the hub that something other than the worker called `function`, and waits until the report has been sent.
void report_exit(const char* function, int code);

/// Sets the code that the process ends with once everything registered with atexit has run.
void set_exit_code(int code);

/// Ends the worker itself: destructors and atexit handlers run, nothing is reported.
[[noreturn]] void exit_quietly(int code);

}  // namespace lockstep::worker
