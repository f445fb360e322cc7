#include "collectives/watch/peer.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/log/process_identity.h"

namespace lockstep::dist {

bool Peer::same_process() const { return same_machine && pid == getpid(); }

bool Peer::alive() const {
  if (!same_machine || same_process()) return true;
  return process_start_time(pid) == process_start;
}

void wait_for_death(const std::vector<Peer>& peers, std::chrono::milliseconds at_most) {
  std::vector<pollfd> descriptors;
  for (const Peer& peer : peers) {
    if (!peer.same_machine || peer.same_process()) continue;
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
    if (fd >= 0) descriptors.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  if (!descriptors.empty()) poll(descriptors.data(), descriptors.size(), static_cast<int>(at_most.count()));
  for (const pollfd& each : descriptors) close(each.fd);
}

}  // namespace lockstep::dist
