// The facts that ranks exchange about their memory. Numbers are bytes.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::inspect {

/// Memory of one name and kind. A storage that several names share is counted for the first one.
struct TensorMemory {
  std::string name, kind, device;
  int64_t tensors = 0, bytes = 0;
};

/// LibTorch's allocations while one cell ran; in a plain program during the watch.
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

struct RankMemory {
  int rank = 0;
  int64_t resident = 0, peak_resident = 0;  // of the process: VmRSS, VmHWM
  int64_t heap_used = 0, heap_free = 0;  // of glibc's malloc, which allocates CPU tensors
  std::optional<int64_t> device_allocated, device_reserved, device_peak;  // of the current GPU, if there is one
  std::vector<TensorMemory> tensors;
  std::optional<WatchedMemory> watched;
};

void to_json(nlohmann::json& json, const RankMemory& memory);
void from_json(const nlohmann::json& json, RankMemory& memory);

}  // namespace lockstep::inspect
