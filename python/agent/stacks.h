// What the threads of this process are doing, as the agent answers it: the native stack of the main thread, and the
// Python stacks of all threads. Both are taken by a signal handler on the main thread, which needs no lock and no
// interpreter, so they are right while the program is stuck anywhere. SIGURG has this handler only while a request is
// answered; system calls that it interrupts are restarted, except those that sleep for a time (poll, nanosleep), which
// Python, c10d and Gloo repeat themselves.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace lockstep::agent {

/// Python's faulthandler, which writes the stacks of all threads from a signal handler. Its handler is found by
/// registering it (faulthandler.register(SIGURG, file=fd, all_threads=True)) between begin_borrowing() and
/// end_borrowing(fd), which gives the signal back what it had. `fd`: a file that this process keeps open, of a size that
/// can be changed (memfd_create).
void begin_borrowing();
void end_borrowing(int fd);

/// {"native": [{"function", "object"}, …], innermost first; empty if the main thread did not answer within a second,
///  "held": the kernel reports that the main thread does not run, "python": faulthandler's text; empty without it}.
nlohmann::json take_stacks();

}  // namespace lockstep::agent
