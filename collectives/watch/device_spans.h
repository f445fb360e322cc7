// Records when the collectives of a group ran on a device, by the device's own clock. The collective log has the host's
// times: on a device they say when work was queued.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace lockstep::dist {

/// The events of a span can be asked for times when the device has reached them.
struct DeviceSpan {
  int64_t seq = 0;  // in the group
  c10::Event queued;  // on the caller's stream, before the collective: its inputs are there
  std::optional<c10::Event> done;  // its results are; unset before the transport has got that far
};

/// Records while it is on: two events for each collective of device tensors, and nothing that waits. From any thread.
class DeviceSpans {
 public:
  static constexpr size_t kMost = 4096;  // the last ones are kept

  bool on() const { return kept_on_ || users_ > 0; }
  void keep_on() { kept_on_ = true; }
  /// Each turn_on() needs a turn_off().
  void turn_on() { ++users_; }
  void turn_off() { --users_; }

  /// Called before the transport gets the collective. Null where it is off, or `tensors` are on the CPU.
  std::shared_ptr<DeviceSpan> begin(int64_t seq, at::TensorList tensors);
  /// Called with the transport's work. `owner` keeps this object until the work is done.
  void end(std::shared_ptr<DeviceSpan> span, c10d::Work& work, std::shared_ptr<const void> owner);

  /// Returns those that are done on the host's side, oldest first.
  std::vector<std::shared_ptr<const DeviceSpan>> all() const;

 private:
  std::atomic<bool> kept_on_ = false;
  std::atomic<int> users_ = 0;
  mutable std::mutex mutex_;  // of all below
  std::optional<c10::Stream> observer_;  // a stream on which nothing runs but waits and events
  std::deque<std::shared_ptr<DeviceSpan>> spans_;
};

}  // namespace lockstep::dist
