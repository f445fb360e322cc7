// Marks the streams of devices, by c10's own interface to them, and so works on every device whose back end LibTorch
// has loaded. A mark says whether its stream has come to a collective.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace lockstep::dist {

/// Returns the device on whose stream a collective of `tensor` is queued; none for the host's and undefined tensors.
inline std::optional<c10::Device> stream_device(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return std::nullopt;
  return tensor.device();
}

/// Returns the calling thread's current stream of `device` (without an index: of the current one), or none where
/// LibTorch has no back end for it.
std::optional<c10::Stream> current_stream(c10::Device device);

/// Records an event on the calling thread's current stream of `device`, and returns a function that says whether the
/// stream has passed it: from any thread, without waiting. Empty where the device has no events, or is being captured
/// into a graph: an event of a capture can't be queried.
std::function<bool()> mark_stream(c10::Device device);

/// Whether the calling thread's current stream of `device` (without an index: of the current one) is being captured
/// into a graph: what is queued on it runs when the graph is replayed, and nothing reports its end.
bool is_captured(c10::Device device);

/// Sets what answers that as well: LibTorch before 2.15 has no way to ask it for every device. Null removes it. From
/// any thread.
void set_stream_capture_query(bool (*function)(c10::Device));

}  // namespace lockstep::dist
