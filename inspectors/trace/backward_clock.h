// When a backward of this thread began and ended, from LibTorch's callbacks before and after each node of the graph.
#pragma once
#include <atomic>
#include <cstdint>
#include <limits>

namespace lockstep::inspect {

/// Measures from construction to destruction. One at a time per thread; on a GPU, where backward runs on LibTorch's
/// threads, one per process.
class BackwardClock {
 public:
  BackwardClock();
  ~BackwardClock();
  BackwardClock(const BackwardClock&) = delete;
  BackwardClock& operator=(const BackwardClock&) = delete;

  void reset();
  bool ran() const { return end_ns_ > 0; }
  /// CLOCK_MONOTONIC, in nanoseconds: the begin of the first node, and the end of the last one.
  int64_t begin_ns() const { return begin_ns_; }
  int64_t end_ns() const { return end_ns_; }

  void node_begins(int64_t now);
  void node_ends(int64_t now);

 private:
  uint64_t callback_ = 0;
  std::atomic<int64_t> begin_ns_ = std::numeric_limits<int64_t>::max(), end_ns_ = 0;
};

}  // namespace lockstep::inspect
