#include "collectives/watch/stream_mark.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <memory>

#include "collectives/transport/libtorch_version.h"
#include "collectives/transport/streams.h"

namespace lockstep::dist {
namespace {

std::atomic<bool (*)(c10::Device)> capture_query{nullptr};

}  // namespace

std::optional<c10::Stream> current_stream(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return std::nullopt;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStream(device.has_index() ? device : guard.getDevice());
}

bool is_captured(c10::Device device) {
  if (bool (*const query)(c10::Device) = capture_query.load(std::memory_order_acquire); query && query(device))
    return true;
#if LOCKSTEP_C10_HAS_STREAM_CAPTURING
  if (const auto stream = current_stream(device))
    return c10::impl::VirtualGuardImpl(device.type()).isStreamCapturing(*stream);
#endif
  return false;
}

void set_stream_capture_query(bool (*function)(c10::Device)) {
  capture_query.store(function, std::memory_order_release);
}

std::function<bool()> mark_stream(c10::Device device) {
  try {
    const auto stream = current_stream(device);
    if (!stream || is_captured(stream->device())) return {};
    return [event = std::shared_ptr<c10::Event>(record_event(*stream))] { return event->query(); };
  } catch (const std::exception&) {
    // This device has no events, or has failed. The collective itself reports the latter, in better words.
    return {};
  }
}

}  // namespace lockstep::dist
