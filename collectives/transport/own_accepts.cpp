#include "collectives/transport/own_accepts.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <set>

#include "collectives/transport/socket_owner.h"

namespace lockstep::dist {

namespace {
std::atomic<bool> any_listener = false;
std::atomic<int64_t> refused = 0;

struct Listeners {
  std::mutex mutex;
  std::set<uint64_t> cookies;  // the kernel gives a number to one socket only, ever
};
// Never destroyed: transports may accept until the process is gone.
Listeners& listeners() {
  static Listeners* all = new Listeners;
  return *all;
}

std::optional<uint64_t> listener_cookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

bool takes_own_user_only(int listener) {
  if (!any_listener) return false;
  const auto cookie = listener_cookie(listener);
  std::lock_guard lock(listeners().mutex);
  return cookie && listeners().cookies.contains(*cookie);
}

/// Calls `take` until it gives a connection of this user, or fails.
template <typename Take>
int accept_from(int listener, const Take& take) {
  const bool checked = takes_own_user_only(listener);
  while (true) {
    const int fd = take();
    if (fd < 0 || !checked || peer_owner(fd) == geteuid()) return fd;
    close(fd);
    ++refused;
  }
}
}  // namespace

void accept_own_user_only(int listener) {
  const auto cookie = listener_cookie(listener);
  if (!cookie) return;
  std::lock_guard lock(listeners().mutex);
  listeners().cookies.insert(*cookie);
  any_listener = true;
}

int64_t refused_connections() { return refused; }

}  // namespace lockstep::dist

/// Both stand in front of the C library's: Gloo calls the first, the loop of c10d's store the second.
extern "C" int accept(int fd, sockaddr* address, socklen_t* size) {
  using Function = int(int, sockaddr*, socklen_t*);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "accept"));
  const socklen_t room = size ? *size : 0;
  return lockstep::dist::accept_from(fd, [&] {
    if (size) *size = room;
    return real(fd, address, size);
  });
}

extern "C" int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  using Function = int(int, sockaddr*, socklen_t*, int);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "accept4"));
  const socklen_t room = size ? *size : 0;
  return lockstep::dist::accept_from(fd, [&] {
    if (size) *size = room;
    return real(fd, address, size, flags);
  });
}
