// Orders work between the streams of devices, for tensors of any device. On the CPU, where work is done when a call
// returns, these functions do nothing.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::dist {

inline c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Marks that the current stream of its device uses `tensor`, whose memory comes from another stream: when it is freed,
/// its memory is not reused before that work is done.
inline void record_use_on_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || !tensor.has_storage()) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
}

/// Ends an event on any thread. c10 makes the thread's device current again afterwards, and on a thread that has not
/// used one that makes a context of some 0.5 GB on GPU 0. A guard with the event's device current avoids it.
struct EndEvent {
  void operator()(c10::Event* event) const {
    const c10::OptionalDeviceGuard guard(event->was_marked_for_recording() ? std::optional(event->device())
                                                                           : std::nullopt);
    delete event;
  }
};
using EventPtr = std::unique_ptr<c10::Event, EndEvent>;

/// Records an event on `stream`, as it is now.
inline EventPtr record_event(c10::Stream stream) {
  EventPtr event(new c10::Event(stream.device_type()));
  event->record(stream);
  return event;
}

/// A point in what is queued so far on the current streams of some devices.
class StreamPoint {
 public:
  StreamPoint() = default;
  /// Takes the devices of `tensors`.
  explicit StreamPoint(at::TensorList tensors) {
    for (const at::Tensor& each : tensors) {
      if (!each.defined() || each.is_cpu() || each.is_meta() || has(each.device())) continue;
      events_.push_back(record_event(current_stream_of(each.device())));
    }
  }

  /// Makes what is queued later on the current streams of the same devices run after it. The host does not wait.
  void wait_on_current_streams() const {
    for (const EventPtr& each : events_) {
      const c10::Stream current = current_stream_of(each->device());
      each->block(current);
    }
  }

 private:
  bool has(c10::Device device) const {
    for (const EventPtr& each : events_)
      if (each->device() == device) return true;
    return false;
  }
  std::vector<EventPtr> events_;
};

}  // namespace lockstep::dist
