// The agent takes the native stack and the Python stack of the main thread of this process. A signal handler on that
// thread takes both; it needs no lock and no interpreter, so they are right while the program is stuck anywhere. SIGURG
// has this handler only while a request is answered; system calls that it interrupts go on
// (worker/process/held_call.h).
//
// Python changes its frames in steps, and a stack that is read between two of them can end the process. So the Python
// stack is read only while the main thread does not hold the interpreter's lock.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace lockstep::worker {
struct Stack;
}

namespace lockstep::agent {

/// Borrow Python's faulthandler, which writes the stack of the thread that its signal handler interrupts. The handler
/// is found by registering it (faulthandler.register(SIGURG, file=fd, all_threads=False)) between begin_borrowing() and
/// end_borrowing(fd), which gives the signal back what it had. `fd` is a file that this process keeps open, of a size
/// that can be changed (memfd_create).
void begin_borrowing();
void end_borrowing(int fd);

/// Ends the reading of Python stacks: Python frees what its handler reads when the interpreter ends. A request that is
/// being answered ends first.
void end_lending();

/// Sets what says whether the thread that calls holds the interpreter's lock. Without it, no Python stack is taken.
void set_lock_check(int (*holds_lock)());

/// {"native": [{"function", "object"}, …], innermost first, with "file" and "line" where `lines` asks for them and the
///            debug information has them; empty if the main thread did not answer within a second,
///  "held": the kernel reports that the main thread does not run,
///  "connecting": to which addresses the process connects without an answer, where "held",
///  "python": faulthandler's text; empty without it, and where there is no answer,
///  "holds_lock": there is no Python stack, since the main thread holds the interpreter's lock}.
/// `anyway`: reads the Python stack with that lock held, too; for a thread that is known to stay within one call.
nlohmann::json take_stacks(bool anyway = false, bool lines = false);

/// Names the functions of a stack: "native" of take_stacks().
nlohmann::json frames_of(const worker::Stack& stack, bool with_lines);

/// Returns how long the main thread has computed, in milliseconds, to some 10 ms; -1 where that is not known.
int64_t main_thread_cpu_ms();
/// Whether the main thread waits in the kernel.
bool main_thread_waits();

}  // namespace lockstep::agent
