// What the end of a process on this machine leaves to find out besides its signal: whether the kernel had no memory for
// it, and where its core file is.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "shell/processes/launcher.h"

namespace lockstep::shell {

/// Counts how often the kernel has killed a process for want of memory: of this process's control group and those below
/// it (memory.events), or of the machine where there is no such group (/proc/vmstat).
struct MemoryKills {
  int64_t count = 0;
  bool of_machine = false;  // a process of another job may be meant
};

/// Tells whether a process that was killed may have been so for want of memory.
class MemoryKillCounter {
 public:
  /// `root`: the folder above /proc and /sys, for tests.
  explicit MemoryKillCounter(std::string root = "");
  /// Returns the counter where it has gone up since it was last looked at, and nothing where neither can be read.
  std::optional<MemoryKills> rise();

 private:
  const std::string root_;
  std::optional<MemoryKills> last_;
};

/// Returns ": probably out of memory (…)", for a process that was killed and before which the counter went up.
std::string out_of_memory_words(bool of_machine);

/// Returns ": does it have too little memory (…)?" where the dynamic linker's exit code says that a process was not
/// loaded, and its address space is limited, as this process's is; empty otherwise.
std::string load_failure_words(const ProcessEnd& end);

/// Returns "; its core file is core.17 in its working directory", or which program has got it; empty where there is
/// none. `pattern` is that of /proc/sys/kernel/core_pattern.
std::string core_words(const ProcessEnd& end, pid_t pid, const std::string& pattern);
std::string core_words(const ProcessEnd& end, pid_t pid);

}  // namespace lockstep::shell
