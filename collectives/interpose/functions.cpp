// The replaced functions that have a hook. Each stands in front of the C library's function of its name.
#include <atomic>

#include "collectives/interpose/hooks.h"
#include "protocol/next_function.h"

namespace {
std::atomic<const lockstep::interpose::Hooks*> hooks = nullptr;
}  // namespace

extern "C" void lockstep_interpose_set_hooks(const lockstep::interpose::Hooks* set) noexcept { hooks = set; }

extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
  auto* const real = lockstep::next_function<"connect", decltype(connect)>();
  const auto* set = hooks.load();
  return set ? set->connect(fd, address, size, real) : real(fd, address, size);
}

extern "C" int listen(int fd, int backlog) noexcept {
  auto* const real = lockstep::next_function<"listen", decltype(listen)>();
  const auto* set = hooks.load();
  return set ? set->listen(fd, backlog, real) : real(fd, backlog);
}

/// Gloo calls it.
extern "C" int accept(int fd, sockaddr* address, socklen_t* size) {
  auto* const real = lockstep::next_function<"accept", decltype(accept)>();
  const auto* set = hooks.load();
  return set ? set->accept(fd, address, size, real) : real(fd, address, size);
}

/// The server of c10d's TCPStore calls it.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  auto* const real = lockstep::next_function<"accept4", decltype(accept4)>();
  const auto* set = hooks.load();
  return set ? set->accept4(fd, address, size, flags, real) : real(fd, address, size, flags);
}

extern "C" ssize_t writev(int fd, const iovec* parts, int count) {
  auto* const real = lockstep::next_function<"writev", decltype(writev)>();
  const auto* set = hooks.load();
  return set ? set->writev(fd, parts, count, real) : real(fd, parts, count);
}
