// The process that has started a kernel: the kernel ends with it.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "protocol/descriptor.h"

namespace lockstep::shell::jupyter {

/// Returns a descriptor of the process that Jupyter names, readable once that has ended; none where it is not known. It may
/// be no parent: a script in between, or it has ended before the kernel came here.
inline Descriptor frontend_process() {
  const char* text = std::getenv("JPY_PARENT_PID");
  const pid_t pid = text ? std::max(static_cast<pid_t>(std::atoll(text)), 0) : 0;
  if (pid == 0) return {};
  Descriptor process = open_process(pid);
  if (process || errno != ESRCH) return process;
  Descriptor ended = make_event();
  set_event(ended.get());
  return ended;
}

}  // namespace lockstep::shell::jupyter
