// Reads the memory of the device that this process uses.
#pragma once
#include <c10/core/Device.h>

#include <optional>

#include "inspectors/memory/facts.h"

namespace lockstep::inspect {

/// Returns that of the accelerator's current device; nothing without one. Local. Asks the driver which processes use a
/// GPU, a second at most.
std::optional<DeviceMemory> device_memory();
/// Returns that of a device.
std::optional<DeviceMemory> device_memory(c10::Device device);

}  // namespace lockstep::inspect
