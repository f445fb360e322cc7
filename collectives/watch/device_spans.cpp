#include "collectives/watch/device_spans.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "collectives/transport/streams.h"

namespace lockstep::dist {

std::shared_ptr<DeviceSpan> DeviceSpans::begin(int64_t seq, at::TensorList tensors) {
  if (!on()) return nullptr;
  for (const at::Tensor& each : tensors) {
    if (!each.defined() || each.is_cpu() || each.is_meta()) continue;
    auto span = std::make_shared<DeviceSpan>(DeviceSpan{
        .seq = seq, .queued = c10::Event(each.device().type(), c10::EventFlag::BACKEND_DEFAULT), .done = {}});
    span->queued.record(current_stream_of(each.device()));
    return span;
  }
  return nullptr;
}

void DeviceSpans::end(std::shared_ptr<DeviceSpan> span, c10d::Work& work, std::shared_ptr<const void> owner) {
  if (!span) return;
  const c10::Device device = span->queued.device();
  {
    const std::lock_guard lock(mutex_);
    if (!observer_ || observer_->device() != device)
      observer_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  work.getFuture()->addCallback(
      [this, owner = std::move(owner), span, device](c10::ivalue::Future& future) {
        if (future.hasError()) return;
        const std::lock_guard lock(mutex_);
        try {
          // The observer's stream waits for the results, the host does not: the future is completed.
          const c10::StreamGuard guard(*observer_);
          future.wait();
          span->done.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
          span->done->record(*observer_);
        } catch (const std::exception&) {  // the device has failed, which the program's next call reports
          return;
        }
        spans_.push_back(span);
        if (spans_.size() > kMost) spans_.pop_front();
      },
      /*uses_future=*/false);
}

std::vector<std::shared_ptr<const DeviceSpan>> DeviceSpans::all() const {
  const std::lock_guard lock(mutex_);
  return {spans_.begin(), spans_.end()};
}

}  // namespace lockstep::dist
