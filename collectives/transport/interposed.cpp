#include "collectives/transport/interposed.h"

#include <cerrno>
#include <string>
#include <utility>

#include "collectives/interpose/hooks.h"
#include "collectives/transport/group_sockets.h"
#include "collectives/transport/own_accepts.h"
#include "collectives/transport/thread_sockets.h"

/// Is null in a program without liblockstep_interpose.
extern "C" [[gnu::weak]] void lockstep_interpose_set_hooks(const lockstep::interpose::Hooks* hooks) noexcept;

namespace lockstep::dist {

namespace {
thread_local bool testing = false;  // interposed() is calling listen()

int on_connect(int fd, const sockaddr* address, socklen_t size, decltype(&::connect) real) {
  if (auto* const noting = ThreadSockets::of_this_thread())
    return noting->connect(fd, std::string(reinterpret_cast<const char*>(address), size),
                           [&] { return real(fd, address, size); });
  return real(fd, address, size);
}

int on_listen(int fd, int backlog, decltype(&::listen) real) noexcept {
  if (testing && fd == -1) {
    testing = false;
    return -1;
  }
  if (auto* const noting = ThreadSockets::of_this_thread())
    return noting->listen(fd, [&] { return real(fd, backlog); });
  return real(fd, backlog);
}

int on_accept(int fd, sockaddr* address, socklen_t* size, decltype(&::accept) real) {
  const socklen_t room = size ? *size : 0;
  return accept_checked(fd, [&] {
    if (size) *size = room;
    return real(fd, address, size);
  });
}

int on_accept4(int fd, sockaddr* address, socklen_t* size, int flags, decltype(&::accept4) real) {
  const socklen_t room = size ? *size : 0;
  return accept_checked(fd, [&] {
    if (size) *size = room;
    return real(fd, address, size, flags);
  });
}

ssize_t on_writev(int fd, const iovec* parts, int count, decltype(&::writev) real) {
  const ssize_t written = real(fd, parts, count);
  if (written >= 0 || (errno != EPIPE && errno != ECONNRESET)) return written;
  const int error = errno;
  if (!count_write_as_done(fd)) {
    errno = error;
    return written;
  }
  ssize_t size = 0;
  for (int i = 0; i < count; ++i) size += static_cast<ssize_t>(parts[i].iov_len);
  return size;
}

constexpr interpose::Hooks kHooks{on_connect, on_listen, on_accept, on_accept4, on_writev};

[[maybe_unused]] const bool installed = [] {
  if (lockstep_interpose_set_hooks) lockstep_interpose_set_hooks(&kHooks);
  return true;
}();
}  // namespace

bool interposed() {
  // The library may be in the process and yet behind the C library in the order of symbols: a call shows it.
  static const bool reached = [] {
    testing = true;
    (void)::listen(-1, 0);
    return !std::exchange(testing, false);
  }();
  return reached;
}

}  // namespace lockstep::dist
