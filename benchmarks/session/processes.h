// The processes of this session and what memory they have, read from /proc.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace lockstep::benchmark {

struct Memory {
  double resident_mb = 0;  // all pages that are mapped in
  double own_mb = 0;       // those that no other process shares
};

/// Of one process. Zero when it is gone.
Memory memory_of(int64_t pid);

/// Programs that were started from the folder of this program, in a session of this user, by role: "shell" (this
/// process), "compiler", "store", "starter" (which ranks are copies of), "worker". Of a role with several processes the
/// largest, by resident memory.
std::map<std::string, Memory> memory_by_role();

}  // namespace lockstep::benchmark
