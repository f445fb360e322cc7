// Reads the exported symbols of a loaded library from its dynamic section: no file is read and no lock of the dynamic
// loader is taken, so this works while another thread is stuck in dlopen.
#pragma once
#include <link.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::worker {

class DynamicSymbols {
 public:
  explicit DynamicSymbols(const link_map* map);

  /// Sets names[i] to the symbol that covers addresses[i]; one pass for all.
  void name(const std::vector<uintptr_t>& addresses, std::vector<std::string>& names) const;

 private:
  uintptr_t base_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  uint32_t count_ = 0;
};

/// Returns the program or library that this code is linked into.
const link_map* own_object();

}  // namespace lockstep::worker
