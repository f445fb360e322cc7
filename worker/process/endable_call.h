// Lets an interrupt end a call in which the run thread waits: the worker's functions that stand in front of those of the
// C library (worker/interpose/blocking_calls.cpp, locks.cpp, system.cpp) wait in one of two ways.
//
//   EndableCall: a system call that fails with EINTR when a signal comes. The handler of that signal makes it fail, and
//                no other one: the thread has said that it is in such a call.
//   EndableWait: a wait for a lock with a time limit that a request sets to a time that is long over. The C library
//                takes it for the end of that time, so that locks stay as they are and no signal of a condition is lost.
//
// After either, leave_call() throws lockstep::Interrupted where that is safe. Where it is not, the call is made again as
// if nothing had happened.
#pragma once
#include <time.h>

#include <cerrno>

#include "worker/process/interrupt.h"

namespace lockstep::worker {

/// Installs the handler, on the run thread.
void prepare_endable_calls();
/// Ends the call in which the run thread waits, after a request. Called again until the cell is over, since a thread
/// that was about to wait may not have noticed. On the I/O thread.
void end_call();

class EndableCall {
 public:
  EndableCall();
  ~EndableCall();
  EndableCall(const EndableCall&) = delete;
  EndableCall& operator=(const EndableCall&) = delete;
  /// Whether the handler has ended the call.
  bool was_ended() const;

 private:
  int before_;
};

class EndableWait {
 public:
  /// `end` is the caller's time limit, absolute; nullptr where there is none.
  explicit EndableWait(const timespec* end);
  ~EndableWait();
  EndableWait(const EndableWait&) = delete;
  EndableWait& operator=(const EndableWait&) = delete;
  /// Returns the time limit to wait with, of whatever clock the caller's has.
  const timespec* limit() const;

 private:
  int before_;
  timespec limit_before_;
};

/// Whether an interrupt is pending.
bool is_call_to_end();

/// What may happen on the way of an exception that leaves a call.
enum class Leaving {
  anything,
  nothing  // no destructor and no handler runs: that of a std::thread that has not been joined would end the process
};

/// Throws lockstep::Interrupted if an interrupt is pending, and if the exception gets out of the cell
/// (worker/cell/throw_guard.h).
void leave_call(Leaving leaving = Leaving::anything);

/// Makes a system call that an interrupt of the run thread ends. Returns its result.
template <typename Call>
auto endable_call(const Call& call) -> decltype(call()) {
  if (!on_run_thread()) return call();
  if (is_call_to_end()) {
    leave_call();
    return call();
  }
  bool ended;
  decltype(call()) result;
  {
    const EndableCall scope;
    result = call();
    ended = scope.was_ended();
  }
  if (!ended) return result;
  leave_call();
  return call();
}

/// Waits by `timed`, with a time limit that an interrupt of the run thread ends, and returns its result: an error's
/// number, or -1 and errno. Waits by `plain` where the wait must not be ended. Returns the result of `over` where it
/// was ended and must not have been.
template <typename Timed, typename Plain, typename Over>
auto endable_wait(const timespec* end, Leaving leaving, const Timed& timed, const Plain& plain, const Over& over)
    -> decltype(plain()) {
  if (!on_run_thread()) return plain();
  if (is_call_to_end()) {
    leave_call(leaving);
    return plain();
  }
  decltype(plain()) result;
  {
    const EndableWait wait(end);
    result = timed(wait.limit());
  }
  const auto problem = result == -1 ? errno : result;
  if ((problem != ETIMEDOUT && problem != EINTR) || !is_call_to_end()) return result;
  leave_call(leaving);
  return over();
}

template <typename Timed, typename Plain>
auto endable_wait(const timespec* end, const Timed& timed, const Plain& plain, Leaving leaving = Leaving::anything)
    -> decltype(plain()) {
  return endable_wait(end, leaving, timed, plain, plain);
}

}  // namespace lockstep::worker
