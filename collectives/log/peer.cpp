#include "collectives/log/peer.h"

#include <unistd.h>

#include "collectives/log/process_identity.h"
#include "protocol/descriptor.h"

namespace lockstep::dist {

bool Peer::same_process() const { return same_machine && pid == getpid(); }

bool Peer::alive() const {
  if (!same_machine || same_process()) return true;
  return process_start_time(pid) == process_start;
}

void wait_for_death(const std::vector<Peer>& peers, std::chrono::milliseconds at_most) {
  std::vector<Descriptor> processes;
  std::vector<pollfd> polled;
  for (const Peer& peer : peers) {
    if (!peer.same_machine || peer.same_process()) continue;
    Descriptor process = open_process(peer.pid);
    if (!process) continue;
    polled.push_back({.fd = process.get(), .events = POLLIN, .revents = 0});
    processes.push_back(std::move(process));
  }
  if (!polled.empty()) poll_until(polled, std::chrono::steady_clock::now() + at_most);
}

}  // namespace lockstep::dist
