// Takes return addresses of a thread, innermost first: of the caller, or of another thread by a signal on it. Taking a
// stack allocates nothing and takes no lock, so it works in signal handlers and while a thread is stuck anywhere.
#pragma once
#include <sys/types.h>

#include <cstdint>

namespace lockstep::worker {

struct Stack {
  static constexpr int kMax = 96;
  int size = 0;
  // Addresses are inside the calling instruction, so that the line is that of the call. The address of an interrupted
  // instruction is itself.
  uintptr_t pc[kMax];
};

/// Takes the caller's stack without its `skip` innermost frames (0: the caller of this function is the first).
/// Async-signal-safe after warm_up_stacks().
void capture_stack(Stack& stack, int skip = 0);

/// Does the same from what a signal handler was given. Where the unwinder can't go on from there (a call of a null or
/// wild pointer), the return address on top of the interrupted stack and the chain of frame pointers are followed.
void capture_interrupted_stack(Stack& stack, void* ucontext);

/// Loads and initialises what unwinding needs, so that it allocates nothing later. Called once, at start.
void warm_up_stacks();

/// Takes the stacks of one thread on demand of another.
class StackProbe {
 public:
  /// Prepares the calling thread to be asked. Called once per process.
  static void watch_this_thread();
  /// Asks the watched thread; `event_fd` (of eventfd kind) is written to when the stack has been taken. By one thread.
  /// What the watched thread does is not disturbed: system calls go on (held_call.h).
  static void request(int event_fd);
  /// Gives the stack of the newest request, or returns false while it has not been taken.
  static bool taken(Stack& stack);
  /// Returns how often the watched thread was asked: system calls that this interrupted go on.
  static int interruptions();
};

}  // namespace lockstep::worker
