#include "inspectors/trace/time_mark.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "collectives/log/collective_log.h"
#include "collectives/transport/streams.h"

namespace lockstep::inspect {

std::optional<c10::Device> current_accelerator() {
  const auto type = at::accelerator::getAccelerator();
  if (!type || !c10::impl::hasDeviceGuardImpl(*type)) return std::nullopt;
  // Not the guard's count: Python's fake tensors (torch.compile, fully_shard) give CUDA a guard that counts a device
  // where there is none.
  if (at::globalContext().getAcceleratorHooksInterface(*type).deviceCount() == 0) return std::nullopt;
  return c10::impl::VirtualGuardImpl(*type).getDevice();
}

void wait_for_device(const std::optional<c10::Device>& device) {
  if (device) c10::impl::VirtualGuardImpl(device->type()).synchronizeDevice(device->index());
}

TimeMark::TimeMark(const std::optional<c10::Device>& device) : host_ns_(dist::monotonic_ns()) {
  if (!device) return;
  event_.emplace(device->type(), c10::EventFlag::BACKEND_DEFAULT);
  event_->record(dist::current_stream_of(*device));
}

void TimeMark::wait() const {
  if (event_) event_->synchronize();
}

double TimeMark::seconds_until(const TimeMark& later) const {
  if (event_ && later.event_) return seconds_between(*event_, *later.event_);
  return static_cast<double>(later.host_ns_ - host_ns_) * 1e-9;
}

double seconds_between(const c10::Event& from, const c10::Event& to) { return from.elapsedTime(to) * 1e-3; }

}  // namespace lockstep::inspect
