#include "collectives/transport/group_sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "collectives/log/socket_owner.h"

namespace lockstep::dist {

namespace {
std::string format_address(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return fmt::format("[{}]:{}", text, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
  else
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return fmt::format("[{}]:{}", text, ntohs(v6.sin6_port));
}

int socket_option(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof value;
  return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}
}  // namespace

std::string local_address(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 ? format_address(address) : "";
}

uint64_t socket_cookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

TcpSocket describe_tcp_socket(int fd) {
  TcpSocket socket{.fd = fd, .local = local_address(fd), .listening = socket_option(fd, SO_ACCEPTCONN) == 1};
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) socket.remote = format_address(address);
  return socket;
}

std::vector<TcpSocket> open_tcp_sockets() {
  std::vector<TcpSocket> sockets;
  DIR* directory = opendir("/proc/self/fd");
  if (!directory) return sockets;
  while (const dirent* item = readdir(directory)) {
    const int fd = std::atoi(item->d_name);
    if (item->d_name[0] == '.' || fd == dirfd(directory) || socket_option(fd, SO_PROTOCOL) != IPPROTO_TCP) continue;
    TcpSocket socket = describe_tcp_socket(fd);
    if (!socket.local.empty()) sockets.push_back(std::move(socket));
  }
  closedir(directory);
  return sockets;
}

HeldSockets::~HeldSockets() {
  for (const std::string& local : watched_) forget_writes(local, lost_writes_);
  for (int fd : fds_) close(fd);
}

void HeldSockets::hold(const TcpSocket& socket) {
  fcntl(socket.fd, F_SETFD, FD_CLOEXEC);
  const int duplicate = fcntl(socket.fd, F_DUPFD_CLOEXEC, 3);
  if (duplicate >= 0) fds_.push_back(duplicate);
}

bool HeldSockets::any_ended() const {
  std::vector<pollfd> watched;
  for (int fd : fds_) watched.push_back({.fd = fd, .events = POLLRDHUP, .revents = 0});
  return !watched.empty() && poll(watched.data(), watched.size(), 0) > 0;
}

void HeldSockets::require_own_peers(const std::string& what) const {
  for (int fd : fds_) require_own_peer(fd, what);
}

void HeldSockets::hold_connections(const std::string& listener, const std::set<std::string>& peer_listeners) {
  for (const TcpSocket& socket : open_tcp_sockets()) {
    if (socket.local == listener) fcntl(socket.fd, F_SETFD, FD_CLOEXEC);
    if (!socket.remote.empty() && (socket.local == listener || peer_listeners.contains(socket.remote))) {
      hold(socket);
      watch_writes(socket.local, lost_writes_);
      watched_.push_back(socket.local);
    }
  }
}

void HeldSockets::shut_down() noexcept {
  for (int fd : fds_) shutdown(fd, SHUT_RDWR);
}

}  // namespace lockstep::dist
