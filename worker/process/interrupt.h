// Makes a running cell stop. A request sets lockstep_poll_requested, which loops of cells look at, and makes a
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

  /// Makes `cell` the one that requests are for from now on. On the I/O thread.
  void arm(int64_t cell);
  /// Returns false where `cell` is not the armed one: nothing happens. On the I/O thread.
  bool request(int64_t cell, StopReason reason);
  /// Ends the requests, since the cell is over, and returns what was asked of it. On the run thread.
  StopReason disarm();
  StopReason pending() const;
  /// Returns the same, after waiting at most `limit` for an interrupt.
  StopReason pending_within(std::chrono::milliseconds limit) const;
  int64_t armed() const;

  /// Returns a descriptor that is readable while a request is pending.
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
