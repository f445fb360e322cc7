// Takes the native stack of a thread of another process, by libdw (elfutils). A thread that waits in a system call is
// read where it stands: its memory does not change, so it is not stopped, and the call that it waits in is not
// interrupted. A thread that runs is stopped by ptrace until its memory is read.
//
// libdw is loaded where it is needed, so that this program need not have it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "inspectors/hang/activity.h"

namespace lockstep::shell {

struct NativeStack {
  std::vector<inspect::StackFrame> frames;  // innermost first
  bool refused = false;  // this process may not read that one
  bool stopped = false;  // the thread was, for a moment: it has run since
  std::string problem;  // why there are no frames, a sentence without a full stop
};

/// Blocks for as long as the kernel does (copies.h).
NativeStack native_stack(int64_t pid, int64_t thread);

/// Returns the variables that a process has set for itself (os.environ), which /proc does not show: it has those of the
/// start. Empty where that can't be read.
std::map<std::string, std::string> live_environment(int64_t pid);

}  // namespace lockstep::shell
