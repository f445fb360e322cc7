#include "collectives/transport/own_accepts.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

#include "collectives/log/socket_owner.h"
#include "collectives/transport/group_sockets.h"

namespace lockstep::dist {

namespace {
std::atomic<bool> any_listener = false;
std::atomic<int64_t> refused = 0;

struct Listeners {
  std::mutex mutex;
  std::set<uint64_t> cookies;
};
// Never destroyed: transports may accept until the process is gone.
Listeners& listeners() {
  static Listeners* all = new Listeners;
  return *all;
}

bool takes_own_user_only(int listener) {
  if (!any_listener) return false;
  const uint64_t cookie = socket_cookie(listener);
  std::lock_guard lock(listeners().mutex);
  return listeners().cookies.contains(cookie);
}
}  // namespace

void accept_own_user_only(int listener) {
  const uint64_t cookie = socket_cookie(listener);
  if (cookie == 0) return;
  std::lock_guard lock(listeners().mutex);
  listeners().cookies.insert(cookie);
  any_listener = true;
}

int accept_checked(int listener, const std::function<int()>& take) {
  const bool checked = takes_own_user_only(listener);
  while (true) {
    const int fd = take();
    if (fd < 0 || !checked || peer_owner(fd) == geteuid()) return fd;
    close(fd);
    ++refused;
  }
}

int64_t refused_connections() { return refused; }

}  // namespace lockstep::dist
