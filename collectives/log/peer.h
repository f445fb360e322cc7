// A peer is what a rank knows of another one: its process and, on the same machine, its collective log.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/log/collective_log.h"

namespace lockstep::dist {

struct Peer {
  int rank = 0;  // of the default group
  bool same_machine = false;
  pid_t pid = 0;
  uint64_t process_start = 0;
  std::shared_ptr<const LogMapping> log;  // null on another machine

  bool same_process() const;
  /// False once the process is gone. Always true on another machine, and for a rank that is a thread of this process.
  bool alive() const;
};

/// Waits until one of the peers' processes ends, or `at_most` has passed. The kernel closes a dying process's
/// connections a moment before it reports the death.
void wait_for_death(const std::vector<Peer>& peers, std::chrono::milliseconds at_most);

}  // namespace lockstep::dist
