#include "shell/jupyter/own_accepts.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "collectives/log/socket_owner.h"
#include "shell/text/text_output.h"

namespace lockstep::shell::jupyter {
namespace {

std::atomic<bool> checks = false, reported = false;

bool is_loopback(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24U == IN_LOOPBACKNET;
  if (address.ss_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
}

/// Runs on libzmq's thread.
bool is_refused(int fd) {
  if (!checks || !is_loopback(fd)) return false;
  const auto owner = dist::peer_owner(fd);
  if (owner == ::geteuid()) return false;
  if (owner && !reported.exchange(true))
    write_message(
        fmt::format("a connection of user {} to the kernel was refused: its frontend has to run as user {}, as "
                    "the kernel does",
                    *owner, ::geteuid()));
  return true;
}

}  // namespace

void accept_own_user_only() { checks = true; }

}  // namespace lockstep::shell::jupyter

/// Stands in front of the C library's, for libzmq.
extern "C" __attribute__((visibility("default"))) int accept4(int listener, sockaddr* address, socklen_t* size,
                                                              int flags) {
  static auto* const real = reinterpret_cast<decltype(&::accept4)>(::dlsym(RTLD_NEXT, "accept4"));
  const socklen_t room = size ? *size : 0;
  while (true) {
    if (size) *size = room;
    const int fd = real(listener, address, size, flags);
    if (fd < 0 || !lockstep::shell::jupyter::is_refused(fd)) return fd;
    ::close(fd);
  }
}
