#include "inspectors/device/late_flag.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <limits>

namespace lockstep::inspect {

LateFlag::LateFlag(const DeviceFunctions& functions, at::TensorList tensors, c10::Stream stream)
    : event_(stream.device_type()) {
  const c10::impl::VirtualGuardImpl device(stream.device_type());
  const c10::Stream current = device.getStream(stream.device());
  {
    const c10::StreamGuard guard(stream);
    const at::NoGradGuard no_grad;
    // Their memory may be of another stream, which would reuse it as soon as it is freed.
    for (const at::Tensor& each : tensors) device.recordDataPtrOnStream(each.storage().data_ptr(), stream);
    const at::Tensor flag = functions.first_bad(tensors);
    host_ = at::empty({1}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
    host_.copy_(flag, /*non_blocking=*/true);
    event_.record(stream);
  }
  if (current != stream) event_.block(current);
}

std::optional<size_t> LateFlag::read() const {
  event_.synchronize();
  const auto index = *host_.const_data_ptr<int32_t>();
  if (index == std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<size_t>(index);
}

}  // namespace lockstep::inspect
