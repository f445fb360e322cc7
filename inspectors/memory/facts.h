// What one rank tells the others of its memory: numbers in bytes.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::inspect {

/// Memory of one name and kind. A storage that several names share is counted where it comes first.
struct TensorMemory {
  std::string name, kind, device;
  int64_t tensors = 0, bytes = 0;
};

/// What an allocator of LibTorch's did while one cell ran (or, in a program, all of it).
struct PeriodMemory {
  int64_t cell = 0;
  int64_t allocations = 0, allocated = 0;  // in all
  int64_t peak = 0;  // above what was held when the watch began
  int64_t kept = 0;  // allocated and not given back within the period; negative where more was given back
};

struct WatchedMemory {
  std::vector<PeriodMemory> cells;  // in the order in which they ran
  int64_t steps = 0;  // of inspect::step, while it watched
  std::optional<int64_t> growth_per_step;  // the middle one of the last steps; unset below three steps
};

struct RankMemory {
  int rank = 0;
  int64_t resident = 0, peak_resident = 0;  // of the process: VmRSS, VmHWM
  int64_t heap_used = 0, heap_free = 0;  // glibc's malloc, from which CPU tensors come: in use; kept for later
  std::optional<int64_t> device_allocated, device_reserved, device_peak;  // of the current GPU, where there is one
  std::vector<TensorMemory> tensors;
  std::optional<WatchedMemory> watched;
};

void to_json(nlohmann::json& json, const RankMemory& memory);
void from_json(const nlohmann::json& json, RankMemory& memory);

}  // namespace lockstep::inspect
