#include "collectives/watch/stream_mark.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <memory>

#include "collectives/transport/libtorch_version.h"

namespace lockstep::dist {
namespace {

std::atomic<bool (*)(c10::Device)> capture_query{nullptr};

}  // namespace

bool is_captured(c10::Device device) {
  if (bool (*const query)(c10::Device) = capture_query.load(std::memory_order_acquire); query && query(device))
    return true;
#if LOCKSTEP_C10_HAS_STREAM_CAPTURING
  if (c10::impl::hasDeviceGuardImpl(device.type())) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    return guard.isStreamCapturing(guard.getStream(device.has_index() ? device : guard.getDevice()));
  }
#endif
  return false;
}

void set_stream_capture_query(bool (*function)(c10::Device)) {
  capture_query.store(function, std::memory_order_release);
}

std::function<bool()> mark_stream(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return {};
  try {
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream stream = guard.getStream(device);
    if (is_captured(stream.device())) return {};
    auto event = std::make_shared<c10::Event>(device.type());
    event->record(stream);
    return [event = std::move(event)] { return event->query(); };
  } catch (const std::exception&) {
    // No events on this device, or the device has failed. The collective itself reports the latter, in better words.
    return {};
  }
}

}  // namespace lockstep::dist
