// Says what holds the memory of a device, after an allocation on it has failed: by variable, the largest first.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/memory/facts.h"
#include "inspectors/memory/memory.h"

namespace lockstep::inspect {

/// Tensors of one variable and kind, of which each storage is counted once, for the first variable that has it.
struct MemoryHolder {
  std::string name, kind;  // "net", "parameter"
  int64_t tensors = 0, bytes = 0;
  std::string largest;  // "fc1.weight [4096, 1024]"; empty for a single tensor without a name
  int64_t largest_bytes = 0;
};

struct OutOfMemoryReport {
  std::string device;  // "cuda:0"
  std::vector<MemoryHolder> holders;  // the most bytes first
  std::optional<DeviceMemory> memory;  // unset for the CPU
  int64_t pid = 0;
};

std::ostream& operator<<(std::ostream& out, const OutOfMemoryReport& report);

/// Reports on `device`. Local: other ranks may be waiting in a collective. Copies no tensor, and waits for no device.
/// Memory that was freed since the failure, such as that of a function's variables, is not seen, and the report says
/// how much more was in use at the peak.
OutOfMemoryReport out_of_memory(const std::vector<NamedMemory>& named, c10::Device device);
/// Reports on the device that this process uses: the accelerator's current one, or the CPU.
OutOfMemoryReport out_of_memory(const std::vector<NamedMemory>& named);

}  // namespace lockstep::inspect
