#include "inspectors/memory/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "inspectors/device/state.h"
#include "inspectors/trace/time_mark.h"

namespace lockstep::inspect {
namespace {

constexpr std::chrono::milliseconds kDriverLimit{1000};

/// Uses the plug-in's table, which knows more than c10's statistics.
bool fill_in(DeviceMemory& memory, const lockstep_device_state_v1& state, int index) {
  lockstep_allocator_state allocator = {};
  if (!state.allocator(index, /*snapshot=*/true, &allocator)) return false;
  memory.allocated = allocator.allocated;
  memory.peak = allocator.allocated_peak;
  memory.reserved = allocator.reserved;
  memory.segments = allocator.segments;
  memory.split = allocator.inactive_split;
  if (allocator.largest_free >= 0) memory.largest_free = allocator.largest_free;
  memory.retries = allocator.retries;
  memory.failures = allocator.failures;
  if (uint64_t used = 0, total = 0; state.memory(index, &used, &total)) {
    memory.used = static_cast<int64_t>(used);
    memory.total = static_cast<int64_t>(total);
  }
  char bus_id[32] = {};
  if (state.bus_id(index, bus_id, sizeof bus_id)) memory.bus_id = gpus::normal_bus_id(bus_id);
  return true;
}

/// Uses the statistics that every caching allocator of c10 keeps.
bool fill_in(DeviceMemory& memory, c10::Device device) {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (!allocator || !allocator->initialized()) return false;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator->getDeviceStats(device.index());
  memory.allocated = stats.allocated_bytes[kAll].current;
  memory.peak = stats.allocated_bytes[kAll].peak;
  memory.reserved = stats.reserved_bytes[kAll].current;
  memory.segments = stats.segment[kAll].current;
  memory.split = stats.inactive_split_bytes[kAll].current;
  memory.retries = stats.num_alloc_retries;
  memory.failures = stats.num_ooms;
  return true;
}

}  // namespace

std::optional<DeviceMemory> device_memory(c10::Device device) {
  DeviceMemory memory;
  memory.device = device.str();
  const lockstep_device_state_v1* state = device_state(device.type());
  if (!(state ? fill_in(memory, *state, device.index()) : !device.is_cpu() && fill_in(memory, device)))
    return std::nullopt;
  if (memory.bus_id.empty()) return memory;
  const gpus::Machine machine = gpus::look(kDriverLimit);
  const auto gpu = std::ranges::find(machine.gpus, memory.bus_id, &gpus::Gpu::bus_id);
  if (gpu != machine.gpus.end()) memory.processes = gpu->processes;
  return memory;
}

std::optional<DeviceMemory> device_memory() {
  const auto accelerator = at::accelerator::getAccelerator(/*checked=*/false);
  // In a test the CPU may have a stand-in of the table.
  if (!accelerator)
    return device_state(c10::DeviceType::CPU) ? device_memory(c10::Device(c10::DeviceType::CPU)) : std::nullopt;
  // LibTorch's CUDA half may be loaded where no device is.
  const auto device = current_accelerator();
  return device ? device_memory(*device) : std::nullopt;
}

}  // namespace lockstep::inspect
