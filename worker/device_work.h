// The work of cells on the rank's device. Kernels run after the calls that queue them have returned, and their errors
// are reported by later calls, which may be those of another cell. So a cell on a device ends when its work there has
// ended: what fails is the work of that cell, and its time is that of the kernels, too. Where a cell leaves work
// unfinished (it has thrown, was interrupted, or captures a graph), an error that shows later is one of the cells since
// then.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "protocol/device_state.h"

namespace lockstep::worker {

/// Work on the device has failed.
struct DeviceFailure {
  std::string type;  // "cudaErrorAssert"
  std::string message;  // what it is, and which cell queued it
  int64_t first_cell = 0, last_cell = 0;  // the cells one of which queued it, as people number them
  bool lost = false;  // the device's context is gone, and with it what the rank has there: the rank has to end
};

class DeviceWork {
 public:
  /// `state` is null for a rank without a device. `device` is "cuda:0".
  DeviceWork(const lockstep_device_state_v1* state, int index, std::string device)
      : state_(state), index_(index), device_(std::move(device)) {}

  /// Whether end_cell() may have something to wait for. Waits for nothing.
  bool is_used() const { return state_ && state_->work(index_) == LOCKSTEP_DEVICE_USED; }

  /// Called at the end of cell `number`. `waits` makes it wait until the cell's work has ended, which takes a few
  /// microseconds where it has; false where the cell ended early, and its work may have no end (a collective that other
  /// ranks do not enter). A lost context is found in either case.
  std::optional<DeviceFailure> end_cell(int64_t number, bool waits);

 private:
  const lockstep_device_state_v1* state_;
  int index_;
  std::string device_;
  int64_t unfinished_since_ = 0;  // the first cell whose work may go on; 0: none
};

}  // namespace lockstep::worker
