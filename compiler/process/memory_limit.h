// Limits the memory that one request may take. A text of one line can ask clang for more than any machine has.
#pragma once
#include <sys/resource.h>

#include <cstdint>

namespace lockstep::compiler {

/// A process that has met its limit has this exit code.
inline constexpr int kOutOfMemory = 77;

/// From here on, an allocation that clang can't go on without ends the process with kOutOfMemory.
void end_when_out_of_memory();

/// While it lives, this process may take that much more memory than it has (RLIMIT_DATA). A limit of 0 is none; a
/// smaller one that the process already has stays.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t megabytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace lockstep::compiler
