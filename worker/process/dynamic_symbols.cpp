#include "worker/process/dynamic_symbols.h"

#include <algorithm>

namespace lockstep::worker {
namespace {

/// The hash table says how many symbols there are: the last chain of the highest bucket ends them.
uint32_t count(const uint32_t* hash) {
  const uint32_t buckets = hash[0], first = hash[1], bloom = hash[2];
  const uint32_t* bucket = hash + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) last = std::max(last, bucket[i]);
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

DynamicSymbols::DynamicSymbols(const link_map* map) : base_(map->l_addr) {
  // The loader makes addresses of these, except in objects whose dynamic section is read-only, such as the vdso.
  const auto address = [this](ElfW(Addr) value) { return value < base_ ? base_ + value : value; };
  for (const ElfW(Dyn)* entry = map->l_ld; entry && entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) at = address(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const ElfW(Sym)*>(at);
    if (entry->d_tag == DT_STRTAB) strings_ = reinterpret_cast<const char*>(at);
    if (entry->d_tag == DT_GNU_HASH) count_ = count(reinterpret_cast<const uint32_t*>(at));
  }
}

void DynamicSymbols::name(const std::vector<uintptr_t>& addresses, std::vector<std::string>& names) const {
  for (uint32_t i = 0; i < count_; ++i) {
    const auto& symbol = symbols_[i];
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
    const uintptr_t start = base_ + symbol.st_value;
    for (size_t k = 0; k < addresses.size(); ++k)
      if (addresses[k] >= start && addresses[k] < start + symbol.st_size) names[k] = strings_ + symbol.st_name;
  }
}

const link_map* own_object() {
  static const link_map* const own = [] {
    dl_find_object found;
    void* const here = reinterpret_cast<void*>(&own_object);
    return _dl_find_object(here, &found) == 0 ? found.dlfo_link_map : nullptr;
  }();
  return own;
}

}  // namespace lockstep::worker
