#include "collectives/log/socket_owner.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "collectives/log/socket_table.h"
#include "protocol/descriptor.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {

std::optional<SocketEnd> end_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  SocketEnd end;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    end.address[0] = v4.sin_addr.s_addr;
    end.port = v4.sin_port;
    return end;
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  end.port = v6.sin6_port;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(end.address.data(), &v6.sin6_addr.s6_addr[12], 4);
    return end;
  }
  end.family = AF_INET6;
  std::memcpy(end.address.data(), &v6.sin6_addr, 16);
  return end;
}

class Netlink {
 public:
  Netlink() {
    const timeval limit{.tv_sec = 2,
                        .tv_usec = 0};  // the kernel answers within the call; a filter may swallow the request
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  /// Returns false where the kernel can't be asked. `answer` stays empty when there is no such socket.
  bool find(const SocketEnd& local, const SocketEnd& remote, std::optional<inet_diag_msg>& answer) const {
    struct {
      nlmsghdr header;
      inet_diag_req_v2 body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.body.sdiag_family = static_cast<uint8_t>(local.family);
    request.body.sdiag_protocol = IPPROTO_TCP;
    request.body.idiag_states = ~0U;
    request.body.id.idiag_sport = local.port;
    request.body.id.idiag_dport = remote.port;
    std::memcpy(request.body.id.idiag_src, local.address.data(), 16);
    std::memcpy(request.body.id.idiag_dst, remote.address.data(), 16);
    request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (!fd_ || send(fd_.get(), &request, sizeof request, 0) != sizeof request) return false;
    alignas(nlmsghdr) std::array<char, 8192> reply;
    const ssize_t size = uninterrupted([&] { return recv(fd_.get(), reply.data(), reply.size(), 0); });
    const auto* header = reinterpret_cast<const nlmsghdr*>(reply.data());
    if (size < static_cast<ssize_t>(sizeof *header) || !NLMSG_OK(header, static_cast<size_t>(size))) return false;
    if (header->nlmsg_type == NLMSG_ERROR)
      return header->nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr)) &&
             static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error == -ENOENT;
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
      return false;
    answer.emplace();
    std::memcpy(&*answer, NLMSG_DATA(header), sizeof *answer);
    return true;
  }

 private:
  const Descriptor fd_{socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
};

/// Finds the socket whose own end is `local`: the one connected to `remote`, or the listener where no program has
/// accepted it. Returns false where the kernel can't be asked.
bool ask_kernel(const SocketEnd& local, const SocketEnd& remote, std::optional<uid_t>& owner) {
  const Netlink netlink;
  std::optional<inet_diag_msg> connection;
  if (!netlink.find(local, remote, connection)) return false;
  // Where there is no such connection the kernel gives a listener of that port; and a socket that its program has
  // closed lives on for a while without an owner.
  if (!connection || connection->id.idiag_sport != local.port || connection->id.idiag_dport != remote.port) return true;
  if (connection->idiag_state != TCP_ESTABLISHED && connection->idiag_state != TCP_CLOSE_WAIT) return true;
  if (connection->idiag_inode != 0) {
    owner = connection->idiag_uid;
    return true;
  }
  std::optional<inet_diag_msg> listener;
  if (!netlink.find(local, {.family = local.family}, listener)) return false;
  if (listener && listener->idiag_state == TCP_LISTEN && listener->idiag_inode != 0) owner = listener->idiag_uid;
  return true;
}

std::optional<uid_t> look_in_tables(const SocketEnd& local, const SocketEnd& remote) {
  std::optional<uid_t> listening;
  bool not_accepted = false;
  for (const SocketEntry& each : tcp_sockets()) {
    if (each.local.port != local.port) continue;
    if (each.state == TCP_LISTEN && each.inode != 0) {
      const bool any = each.local.address == std::array<uint32_t, 4>{};
      if (each.local == local || any) listening = each.uid;
    } else if (each.local == local && each.remote == remote &&
               (each.state == TCP_ESTABLISHED || each.state == TCP_CLOSE_WAIT)) {
      if (each.inode != 0) return each.uid;
      not_accepted = true;
    }
  }
  return not_accepted ? listening : std::nullopt;
}

}  // namespace

std::optional<uid_t> peer_owner_from_proc(int fd) {
  const auto own = end_of(fd, getsockname), peer = end_of(fd, getpeername);
  return own && peer ? look_in_tables(*peer, *own) : std::nullopt;
}

std::optional<uid_t> peer_owner(int fd) {
  const auto own = end_of(fd, getsockname), peer = end_of(fd, getpeername);
  if (!own || !peer) return std::nullopt;
  std::optional<uid_t> owner;
  return ask_kernel(*peer, *own, owner) ? owner : look_in_tables(*peer, *own);
}

void require_own_peer(int fd, const std::string& what) {
  const auto owner = peer_owner(fd);
  if (owner == geteuid()) return;
  throw Error(
      owner ? fmt::format("{} is held by user {}, and this process is of user {}: another program has taken its port. "
                          "Start afresh",
                          what, *owner, geteuid())
            : fmt::format("{} has closed its connection", what));
}

}  // namespace lockstep::dist
