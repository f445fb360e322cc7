#include "collectives/watch/death_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::dist {

DeathWatch::DeathWatch(std::vector<Peer> peers, std::function<void(int)> died) : died_(std::move(died)) {
  std::erase_if(peers, [](const Peer& peer) { return !peer.same_machine || peer.same_process(); });
  if (peers.empty()) return;
  end_fd_ = eventfd(0, EFD_CLOEXEC);
  if (end_fd_ < 0) return;  // out of descriptors: waits end with their deadlines
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, peers = std::move(peers)] { run(peers); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DeathWatch::~DeathWatch() {
  if (end_fd_ < 0) return;
  const uint64_t one = 1;
  (void)!write(end_fd_, &one, sizeof one);
  thread_.join();
  close(end_fd_);
}

void DeathWatch::run(const std::vector<Peer>& peers) {
  pthread_setname_np(pthread_self(), "lockstep-deaths");
  std::vector<pollfd> descriptors = {{.fd = end_fd_, .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers) {
    int fd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
    if (!peer.alive()) {  // gone, or the number is another process's by now
      died_(peer.rank);
      if (fd >= 0) close(fd);
      fd = -1;
    }
    descriptors.push_back({.fd = fd, .events = POLLIN, .revents = 0});  // poll passes over -1
  }
  while (true) {
    if (poll(descriptors.data(), descriptors.size(), -1) < 0 && errno != EINTR) break;
    if (descriptors[0].revents != 0) break;
    for (size_t i = 0; i < peers.size(); ++i) {
      pollfd& each = descriptors[i + 1];
      if (each.fd < 0 || each.revents == 0) continue;
      died_(peers[i].rank);
      close(each.fd);
      each.fd = -1;
    }
  }
  for (size_t i = 1; i < descriptors.size(); ++i)
    if (descriptors[i].fd >= 0) close(descriptors[i].fd);
}

}  // namespace lockstep::dist
