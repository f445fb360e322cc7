#include "shell/jupyter/own_accepts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "collectives/log/socket_owner.h"
#include "shell/processes/accept_check.h"
#include "shell/text/text_output.h"

namespace lockstep::shell::jupyter {
namespace {

std::atomic<bool> reported = false;

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
bool is_own(int fd) {
  if (!is_loopback(fd)) return true;
  const auto owner = dist::peer_owner(fd);
  if (owner == ::geteuid()) return true;
  if (owner && !reported.exchange(true))
    write_message(
        fmt::format("a connection of user {} to the kernel was refused: its frontend has to run as user {}, as "
                    "the kernel does",
                    *owner, ::geteuid()));
  return false;
}

}  // namespace

void accept_own_user_only() { static const AcceptCheck check(is_own); }

}  // namespace lockstep::shell::jupyter
