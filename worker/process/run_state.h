// Holds what the run thread does at this moment. The run thread writes it; the I/O thread and signal handlers read it
// at any time.
//
//   starting ─→ idle ⇄ loading | running | regrouping
//      └──────────┴─→ ending
//
// `waiting` of RankState is no phase of its own: a rank that runs a cell and is in a collective is reported so.
#pragma once
#include <atomic>
#include <cstdint>

#include "protocol/status.h"

namespace lockstep::worker {

class RunState {
 public:
  /// Changes the phase; nothing else does. Throws std::logic_error for a transition that the drawing does not have.
  void enter(RankState to);
  /// Notes that the rank is running `cell`, which people call `number`, and is in none of its steps yet.
  void begin_cell(int64_t cell, int64_t number);
  /// `line` is the first line of the step, 0 where it is unknown.
  void begin_step(int line) { line_ = line; }
  /// Sets the code of the step that runs; 0: no code of a cell.
  void set_code(uintptr_t address) { code_ = address; }
  /// Sets whether the thread is in a function of worker/interpose/sleep.cpp.
  void set_asleep(bool asleep) { asleep_ = asleep; }
  /// Sets whether the statements of the cell are over and the thread waits for what they queued on the device.
  void set_waits_for_device(bool waits) { waits_for_device_ = waits; }

  RankState phase() const { return phase_; }
  int64_t since_ns() const { return since_ns_; }  // CLOCK_MONOTONIC, of the phase
  int64_t cell() const { return cell_; }  // that runs or was the last to run
  int64_t number() const { return number_; }  // what people call it
  int line() const { return line_; }
  uintptr_t code() const { return code_; }
  bool asleep() const { return asleep_; }
  bool waits_for_device() const { return waits_for_device_; }

  static int64_t now_ns();

 private:
  std::atomic<RankState> phase_{RankState::starting};
  std::atomic<int64_t> cell_{0}, number_{0};
  std::atomic<int> line_{0};
  std::atomic<uintptr_t> code_{0};
  std::atomic<int64_t> since_ns_{now_ns()};
  std::atomic<bool> asleep_{false}, waits_for_device_{false};
};

/// Returns the state of this process.
RunState& run_state();

}  // namespace lockstep::worker
