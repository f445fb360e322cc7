// Calls a function when a peer's process on this machine ends: at once and without polling, since the kernel reports
// it.
#pragma once
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
  DeathWatch(std::vector<Peer> peers, std::function<void(int rank)> died);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

 private:
  void run(const std::vector<Peer>& peers);

  const std::function<void(int)> died_;
  Descriptor end_;
  std::thread thread_;  // none where there is no process to watch
};

}  // namespace lockstep::dist
