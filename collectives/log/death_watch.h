// Calls a function when a peer's process on this machine ends: at once and without polling, since the kernel reports
// it.
#pragma once
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "collectives/log/peer.h"
#include "protocol/descriptor.h"

namespace lockstep::dist {

class DeathWatch {
 public:
  /// `died` is called with the rank, on the watch's own thread, once for each peer, also for one that is dead already.
  /// Peers on other machines, and peers that are threads of this process, are not watched.
  /// Nor is one that lives and can't be opened, for want of descriptors: watches_all() says so.
  DeathWatch(std::vector<Peer> peers, std::function<void(int rank)> died);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  /// False where the end of a peer on this machine may not be noticed.
  bool watches_all() const { return watches_all_; }

 private:
  struct Watched {
    int rank;
    Descriptor process;  // none where it has ended
  };
  void run(std::vector<Watched> processes);

  const std::function<void(int)> died_;
  bool watches_all_ = true;
  Descriptor end_;
  const pid_t process_ = getpid();
  std::thread thread_;  // none where there is no process to watch
};

}  // namespace lockstep::dist
