// The plug-in answers for GPUs what LibTorch can't answer for every device.
#pragma once
#include <functional>

namespace lockstep::dist {

/// Asks the plug-in from now on whether a stream is being captured, and lets it guard what asks devices
/// (set_stream_capture_query, set_device_query_guard). Does nothing where LibTorch's CUDA half is not loaded, or there
/// is no plug-in. From any thread; cheap when it is repeated.
void use_queries_of_plugin();

/// Calls `ask`, which queries events of a device, in a state of this thread in which that ends no capture of another
/// thread, where the plug-in can see to that.
void query_devices(const std::function<void()>& ask);

}  // namespace lockstep::dist
