// Measures when a backward of this thread began and ended, by LibTorch's callbacks before each node of the graph and at
// its end.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>

#include "inspectors/trace/time_mark.h"

namespace lockstep::inspect {

/// Measures from construction to destruction. One at a time per thread; on a device, where backward runs on LibTorch's
/// threads, one per process. Waits for no device.
class BackwardClock {
 public:
  /// Streams of `device` are asked for times; none: the host's clock.
  explicit BackwardClock(std::optional<c10::Device> device);
  ~BackwardClock();
  BackwardClock(const BackwardClock&) = delete;
  BackwardClock& operator=(const BackwardClock&) = delete;

  void reset();
  bool ran() const { return begin_ && end_; }
  /// Return the begin of the first node since reset(), and the end of the last backward: all its nodes, without the
  /// reductions that it started. Called after ran().
  const TimeMark& begin() const { return *begin_; }
  const TimeMark& end() const { return *end_; }

  void node_begins();

 private:
  void backward_ends();

  const std::optional<c10::Device> device_;
  uint64_t callback_ = 0;
  std::atomic<int> task_ = -1;  // of autograd's engine, whose end is awaited
  std::mutex mutex_;  // of both below
  std::optional<TimeMark> begin_, end_;
};

}  // namespace lockstep::inspect
