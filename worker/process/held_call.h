// Hides from a thread that a signal handler has taken its stack. The kernel restarts most system calls that a signal
// has interrupted, but not those that wait for a time (poll, select, epoll_wait, sem_timedwait, sockets with a time
// limit): these return EINTR. Here the handler goes on with such a call and gives the thread its result.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <array>
#include <cstdint>

namespace lockstep::worker {

/// The system call in which the kernel holds a thread.
struct HeldCall {
  long number = -1;  // -1: none, or the kernel does not show it
  std::array<uintptr_t, 6> arguments{};
  uintptr_t stack_pointer = 0, instruction = 0;
};

/// Returns the system call of a thread of this process.
HeldCall held_call(pid_t thread);

/// Returns the action for SIGURG, the signal that takes a stack. Other signals wait until its handler is done or goes
/// on with a call.
struct sigaction looking_action(void (*handler)(int, siginfo_t*, void*));

/// Whether the signal of such a handler has interrupted `call`, which would return EINTR.
bool is_interrupted(const HeldCall& call, const void* ucontext);

/// Waits in such a handler, if is_interrupted(), for the end of the call, and makes the thread go on with its result
/// when the handler returns. Other signals of the thread interrupt the call as if this one had not come. Time limits
/// stay; those of epoll_wait, of sockets, and of System V's queues and semaphores begin again.
void go_on_with(const HeldCall& call, void* ucontext);

}  // namespace lockstep::worker
