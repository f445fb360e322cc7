// Tells when a peer's process on this machine ends, at once and without asking again and again: the kernel does.
#pragma once
#include <functional>
#include <thread>
#include <vector>

#include "collectives/watch/peer.h"

namespace lockstep::dist {

class DeathWatch {
 public:
  /// `died` is called with the rank, on the watch's own thread, once for each. Peers on other machines, and such that are threads of
  /// this process, are not watched; one that is dead already is told of, too.
  DeathWatch(std::vector<Peer> peers, std::function<void(int rank)> died);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

 private:
  void run(const std::vector<Peer>& peers);

  const std::function<void(int)> died_;
  int end_fd_ = -1;
  std::thread thread_;  // none where there is nobody to watch
};

}  // namespace lockstep::dist
