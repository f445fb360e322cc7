// The facts that ranks exchange about their memory. Numbers are bytes.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/gpus/gpus.h"

namespace lockstep::inspect {

/// Memory of one name and kind. A storage that several names share is counted for the first one.
struct TensorMemory {
  std::string name, kind, device;
  int64_t tensors = 0, bytes = 0;
};

/// Counts LibTorch's allocations while one cell ran; in a plain program during the watch.
struct PeriodMemory {
  int64_t cell = 0;  // 0 in a plain program
  int64_t allocations = 0, allocated = 0;  // in total
  int64_t peak = 0;  // above the memory at the begin of the watch
  int64_t kept = 0;  // allocated and not freed in the period; negative if more was freed
};

struct WatchedMemory {
  std::vector<PeriodMemory> cells;  // in the order in which they ran
  int64_t steps = 0;  // of inspect::step, during the watch
  std::optional<int64_t> growth_per_step;  // the median of the last steps; unset below three steps
};

/// Describes the memory of the device that a rank uses. `reserved` and what follows are of LibTorch's caching
/// allocator; unset where a device keeps no such numbers.
struct DeviceMemory {
  std::string device;  // "cuda:0"
  std::string bus_id;  // by which ranks on the same GPU are found: "0000:3b:00.0"; empty where unknown
  int64_t allocated = 0, peak = 0;  // of tensors, now and at most
  int64_t reserved = 0;  // taken from the device
  int64_t segments = 0;  // in so many pieces
  std::optional<int64_t> split;  // free, and in pieces that are in use otherwise: can't be given back to the device
  std::optional<int64_t> largest_free;  // the largest tensor for which nothing has to be taken from the device
  int64_t retries = 0;  // allocations for which free pieces had to be given back first
  int64_t failures = 0;  // allocations that failed
  std::optional<int64_t> used, total;  // of the device: by all processes, and in all
  std::vector<gpus::GpuProcess> processes;  // that have a context on it, as the driver counts them
};

struct RankMemory {
  int rank = 0;
  int64_t pid = 0;
  std::string host;
  int64_t resident = 0, peak_resident = 0;  // of the process: VmRSS, VmHWM
  int64_t heap_used = 0, heap_free = 0;  // of glibc's malloc, which allocates CPU tensors
  std::optional<DeviceMemory> device;  // if the rank uses one
  std::vector<TensorMemory> tensors;
  std::optional<WatchedMemory> watched;
};

void to_json(nlohmann::json& json, const RankMemory& memory);
void from_json(const nlohmann::json& json, RankMemory& memory);

}  // namespace lockstep::inspect
