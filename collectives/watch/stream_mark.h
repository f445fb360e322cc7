// Marks on the streams of devices, by c10's own interface to them, so that they work on every device whose back end
// LibTorch has loaded: how a collective is asked whether its stream has come to it.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>

namespace lockstep::dist {

/// The device on whose stream a collective of `tensor` is queued; none for the host's, and for undefined tensors.
inline std::optional<c10::Device> stream_device(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return std::nullopt;
  return tensor.device();
}

/// Records an event on the calling thread's current stream of `device`, and returns a function that says whether the
/// stream has passed it: from any thread, without waiting. Empty where the device has no events, or is being captured
/// into a graph: an event of a capture can't be queried.
std::function<bool()> mark_stream(c10::Device device);

/// Whether the current stream of a device is being captured into a graph. LibTorch before 2.15 has no way to ask that
/// for every device: the plug-in for a device sets `function`, null removes it. From any thread.
void set_stream_capture_query(bool (*function)(c10::Device));

}  // namespace lockstep::dist
