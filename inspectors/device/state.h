// Finds the state of devices (protocol/device_state.h): that of the plug-in for GPUs, or of a stand-in in tests.
#pragma once
#include <c10/core/Device.h>

#include "protocol/device_state.h"

namespace lockstep::inspect {

/// Returns the functions for a device type; null where there are none. The plug-in's are looked up at the first call
/// for CUDA. From any thread.
const lockstep_device_state_v1* device_state(c10::DeviceType device);

/// Registers `state`, which must outlive all calls; null removes it. Throws c10::Error for another version.
void set_device_state(c10::DeviceType device, const lockstep_device_state_v1* state);

}  // namespace lockstep::inspect
