// What the run thread does at this moment, for the I/O thread and signal handlers to read at any time.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::worker {

enum class Phase : int { starting, idle, loading, running, regrouping, ending };

struct RankState {
  std::atomic<Phase> phase{Phase::starting};
  std::atomic<int64_t> cell{0};      // that runs or was the last to run
  std::atomic<int64_t> number{0};    // what people call it
  std::atomic<int> line{0};          // first line of the step that runs; 0 unknown
  std::atomic<uintptr_t> step{0};    // its code; 0: no code of a cell
  std::atomic<int64_t> since_ns{0};  // CLOCK_MONOTONIC, of the phase

  std::atomic<bool> asleep{false};   // in a function of worker/interpose/sleep.cpp

  void enter(Phase to) {
    since_ns.store(now_ns());
    phase.store(to);
  }

  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// This process's.
RankState& rank_state();

}  // namespace lockstep::worker
