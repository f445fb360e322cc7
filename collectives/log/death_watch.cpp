#include "collectives/log/death_watch.h"

#include <pthread.h>

#include <algorithm>

#include "protocol/blocked_signals.h"

namespace lockstep::dist {

DeathWatch::DeathWatch(std::vector<Peer> peers, std::function<void(int)> died) : died_(std::move(died)) {
  std::erase_if(peers, [](const Peer& peer) { return !peer.same_machine || peer.same_process(); });
  if (peers.empty()) return;
  end_ = make_event();
  if (!end_) return;  // out of descriptors: waits end with their deadlines
  const BlockedSignals signals;  // they are for the threads of the program
  thread_ = std::thread([this, peers = std::move(peers)] { run(peers); });
}

DeathWatch::~DeathWatch() {
  if (!end_) return;
  set_event(end_.get());
  thread_.join();
}

void DeathWatch::run(const std::vector<Peer>& peers) {
  pthread_setname_np(pthread_self(), "lockstep-deaths");
  std::vector<Descriptor> processes;
  std::vector<pollfd> polled = {{.fd = end_.get(), .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers) {
    processes.push_back(open_process(peer.pid));
    if (!peer.alive()) {  // gone, or the number is another process's by now
      died_(peer.rank);
      processes.back().reset();
    }
    polled.push_back({.fd = processes.back().get(), .events = POLLIN, .revents = 0});  // poll passes over -1
  }
  while (poll_until(polled) >= 0 && polled[0].revents == 0) {
    for (size_t i = 0; i < peers.size(); ++i) {
      pollfd& each = polled[i + 1];
      if (each.fd < 0 || each.revents == 0) continue;
      died_(peers[i].rank);
      processes[i].reset();
      each.fd = -1;
    }
  }
}

}  // namespace lockstep::dist
