// Holds the shared objects that this rank has loaded: cells and the prelude. Each comes from a file of its own (opening
// a descriptor number that was used before would give the old library) and has run nothing by being loaded. What has
// run stays loaded for ever.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/cell_abi.h"

namespace lockstep::worker {

struct CellObject {
  int64_t cell = 0;
  std::string path;
  const lockstep_cell_entry* entry = nullptr;
  std::function<void()> close;
  uintptr_t base = 0;  // what its addresses are relative to
  uintptr_t begin = 0;  // mapped addresses
  // Where later cells of the same text run it: what its line tables call it, and what people call it now.
  mutable std::atomic<int64_t> number{0}, shown_as{0};
  mutable std::atomic<uintptr_t> end{0};  // 0 once it has been unloaded
  const CellObject* next = nullptr;
};

/// The result of a load: an object, or why there is none.
struct LoadResult {
  const CellObject* object = nullptr;
  std::string problem;
};

/// Writes `bytes` to DIRECTORY/NAME and opens it (worker/process/host.h). `problem` names symbols demangled and no path.
LoadResult load_cell(int64_t cell, const std::string& directory, const std::string& name, const std::string& entry,
                     std::string_view bytes);

/// Takes a cell that has not run out of the process again: later cells must not find its names.
void unload_cell(const CellObject& object);

/// Loads a library that is there already (the prelude). Returns what went wrong; empty when nothing did.
std::string load_library(const std::string& path);

/// Returns the loaded object that holds `address`; nullptr where there is none. Takes no lock.
const CellObject* find_cell_object(uintptr_t address);
size_t cell_object_count();

/// Returns mappings that this process has, and may have (vm.max_map_count); nothing where the system doesn't say.
int64_t mapping_count();
std::optional<int64_t> mapping_limit();
/// Returns how many more objects can be loaded.
int64_t cells_left();
/// One object takes this many mappings.
inline constexpr int64_t kMappingsPerCell = 5;

}  // namespace lockstep::worker
