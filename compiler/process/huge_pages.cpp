#include "compiler/process/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep::compiler {

namespace {

#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;  // glibc names it since 2.37
#endif
constexpr uintptr_t kSmallPage = 4096, kHugePage = uintptr_t{2} << 20;

/// Most of the memory from `begin` on is in use, so that joining its pages adds little.
bool is_in_use(uintptr_t begin) {
  std::array<unsigned char, kHugePage / kSmallPage> resident = {};
  if (::mincore(reinterpret_cast<void*>(begin), kHugePage, resident.data()) != 0) return false;
  return std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; }) >
         static_cast<ptrdiff_t>(resident.size()) * 3 / 4;
}

}  // namespace

void join_pages() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char access[5] = {}, file[2] = {};
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*x %*x:%*x %lu %1s", &begin, &end, access, &inode, file) < 4) continue;
    const bool is_of_malloc = inode == 0 && (file[0] == '\0' || line.ends_with("[heap]"));
    if (std::string_view(access) != "rw-p" || !is_of_malloc) continue;
    begin = (begin + kHugePage - 1) / kHugePage * kHugePage;
    end = end / kHugePage * kHugePage;
    for (; begin < end; begin += kHugePage)
      if (is_in_use(begin)) ::madvise(reinterpret_cast<void*>(begin), kHugePage, kCollapse);
  }
}

}  // namespace lockstep::compiler
