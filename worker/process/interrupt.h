// How a running cell is made to stop. A request sets lockstep_poll_requested, which loops of cells look at, and makes a
// descriptor readable, which sleeps wait for; both stay so until the cell is over, so that a cell that catches the
// exception meets it again. Exceptions leave the run thread only where throwing is safe.
#pragma once
#include <chrono>
#include <cstdint>

namespace lockstep::worker {

/// Why the running cell has been asked to stop.
enum class StopReason { none, interrupt, abort };

class StopRequests {
 public:
  StopRequests();

  /// On the I/O thread: `cell` is the one that requests are for from now on.
  void arm(int64_t cell);
  /// On the I/O thread. False where `cell` is not the armed one: nothing happens.
  bool request(int64_t cell, StopReason reason);
  /// The cell is over: what was asked of it. On the run thread.
  StopReason disarm();
  StopReason pending() const;
  /// The same, after waiting at most `limit` for an interrupt.
  StopReason pending_within(std::chrono::milliseconds limit) const;
  int64_t armed() const;

  /// Readable while a request is pending.
  int fd() const { return fd_; }

 private:
  int fd_;
};

StopRequests& stop_requests();

/// Makes the calling thread the one that runs cells.
void become_run_thread();
bool on_run_thread();

/// Whether an exception may be thrown here: on the run thread, running a cell, not while another is on its way, not in
/// the body of a parallel loop. Costs next to nothing; lockstep_poll() looks at the stack as well.
bool may_throw_here();

}  // namespace lockstep::worker
