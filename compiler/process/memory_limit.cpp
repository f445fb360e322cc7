#include "compiler/process/memory_limit.h"

#include <llvm/Support/ErrorHandling.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>

namespace lockstep::compiler {
namespace {

[[noreturn]] void end() { ::_exit(kOutOfMemory); }

/// Returns the writable private memory that RLIMIT_DATA counts: the sixth number of /proc/self/statm, in pages.
rlim_t data_bytes() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  for (int i = 0; i < 6; ++i) file >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void end_when_out_of_memory() {
  std::set_new_handler(&end);
  llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { end(); });
}

MemoryLimit::MemoryLimit(int64_t megabytes) {
  ::getrlimit(RLIMIT_DATA, &before_);
  if (megabytes <= 0) return;
  rlimit limit = before_;
  limit.rlim_cur = std::min(before_.rlim_cur, data_bytes() + (static_cast<rlim_t>(megabytes) << 20));
  ::setrlimit(RLIMIT_DATA, &limit);
}

MemoryLimit::~MemoryLimit() { ::setrlimit(RLIMIT_DATA, &before_); }

}  // namespace lockstep::compiler
