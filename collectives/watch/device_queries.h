// What LibTorch can't answer for every device, the plug-in answers for GPUs.
#pragma once
#include <functional>

namespace lockstep::dist {

/// From now on it is asked whether a stream is being captured, and guards what asks devices (set_stream_capture_query,
/// set_device_query_guard). Does nothing where LibTorch's CUDA half is not loaded, or there is no plug-in. From any
/// thread; cheap when it is repeated.
void use_queries_of_plugin();

/// Calls `ask`, which queries events of a device, in a state of this thread in which that ends no capture of another
/// one, where the plug-in can see to that.
void query_devices(const std::function<void()>& ask);

}  // namespace lockstep::dist
