// Marks points in time of what a rank does: on a device, where the host only queues work, when the device gets there.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>

namespace lockstep::inspect {

/// Returns the current device of the process's accelerator; none where there is no accelerator.
std::optional<c10::Device> current_accelerator();
/// Waits for all streams of `device`; returns at once without one.
void wait_for_device(const std::optional<c10::Device>& device);

/// Marks, with a device, when its current stream reaches what is queued so far. Without one, it marks now.
class TimeMark {
 public:
  /// Waits for nothing.
  explicit TimeMark(const std::optional<c10::Device>& device);

  void wait() const;
  /// Returns the seconds from this mark to `later`, of the same device. Both must have been reached.
  double seconds_until(const TimeMark& later) const;

 private:
  int64_t host_ns_;
  std::optional<c10::Event> event_;
};

/// Returns the seconds between two events of a device that have been reached.
double seconds_between(const c10::Event& from, const c10::Event& to);

}  // namespace lockstep::inspect
