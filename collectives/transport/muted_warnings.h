// Hides LibTorch's warnings about something that is done on purpose.
#pragma once

namespace lockstep::dist {

/// While one exists, LibTorch's log shows errors only, in the whole process: its level has no smaller scope. So it
/// should not exist for longer than it is needed. c10d warns, with a stack of its own frames, of every store connection
/// that ends while a call waits on it, and ending it is how such a call is freed. From any thread; several may exist at
/// once.
class MutedWarnings {
 public:
  MutedWarnings();
  ~MutedWarnings();
  MutedWarnings(const MutedWarnings&) = delete;
  MutedWarnings& operator=(const MutedWarnings&) = delete;
};

}  // namespace lockstep::dist
