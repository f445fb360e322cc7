#include "collectives/log/death_watch.h"

#include <pthread.h>

#include <algorithm>

#include "protocol/blocked_signals.h"

namespace lockstep::dist {

DeathWatch::DeathWatch(std::vector<Peer> peers, std::function<void(int)> died) : died_(std::move(died)) {
  std::erase_if(peers, [](const Peer& peer) { return !peer.same_machine || peer.same_process(); });
  if (peers.empty()) return;
  std::vector<Watched> processes;
  for (const Peer& peer : peers) {
    Descriptor process = open_process(peer.pid);
    const bool alive = peer.alive();  // asked after it is open: the number may be another process's by now
    if (!process && alive)
      watches_all_ = false;  // waits end with their deadlines
    else
      processes.push_back({peer.rank, alive ? std::move(process) : Descriptor()});
  }
  end_ = make_event();
  if (!end_) watches_all_ = false;
  if (!end_) return;
  const BlockedSignals signals;  // they are for the threads of the program
  thread_ = std::thread([this, processes = std::move(processes)]() mutable { run(std::move(processes)); });
}

DeathWatch::~DeathWatch() {
  if (!end_) return;
  if (getpid() != process_) {  // of a forked process: the thread and the event are its parent's
    thread_.detach();
    return;
  }
  set_event(end_.get());
  thread_.join();
}

void DeathWatch::run(std::vector<Watched> processes) {
  pthread_setname_np(pthread_self(), "lockstep-deaths");
  std::vector<pollfd> polled = {{.fd = end_.get(), .events = POLLIN, .revents = 0}};
  for (const Watched& each : processes) {
    if (!each.process) died_(each.rank);
    polled.push_back({.fd = each.process.get(), .events = POLLIN, .revents = 0});  // poll passes over -1
  }
  while (poll_until(polled) >= 0 && polled[0].revents == 0) {
    for (size_t i = 0; i < processes.size(); ++i) {
      pollfd& each = polled[i + 1];
      if (each.fd < 0 || each.revents == 0) continue;
      died_(processes[i].rank);
      processes[i].process.reset();
      each.fd = -1;
    }
  }
}

}  // namespace lockstep::dist
