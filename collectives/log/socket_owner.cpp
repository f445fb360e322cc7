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
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "protocol/descriptor.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {

/// One end of a connection, as both tables have it: IPv4 in the first word alone.
struct End {
  int family = AF_INET;
  std::array<uint32_t, 4> address{};  // network byte order
  uint16_t port = 0;                  // network byte order
  bool operator==(const End&) const = default;
};

struct Found {
  uid_t uid = 0;
  bool accepted = false;  // a program holds it
};

std::optional<End> end_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  End end;
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
  bool find(const End& local, const End& remote, std::optional<inet_diag_msg>& answer) const {
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
bool ask_kernel(const End& local, const End& remote, std::optional<uid_t>& owner) {
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

/// Parses "0100007F:1F90", or an IPv6 address: words in the machine's byte order, and the port as a number.
std::optional<End> parse_end(const char* text) {
  End end;
  unsigned port = 0;
  uint32_t words[4];
  if (std::strlen(text) < 20) {
    if (std::sscanf(text, "%8" SCNx32 ":%4x", &words[0], &port) != 2) return std::nullopt;
    end.address[0] = words[0];
  } else {
    if (std::sscanf(text, "%8" SCNx32 "%8" SCNx32 "%8" SCNx32 "%8" SCNx32 ":%4x", &words[0], &words[1], &words[2],
                    &words[3], &port) != 5)
      return std::nullopt;
    if (words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff)) {
      end.address[0] = words[3];
    } else {
      end.family = AF_INET6;
      std::memcpy(end.address.data(), words, sizeof words);
    }
  }
  end.port = htons(static_cast<uint16_t>(port));
  return end;
}

std::optional<uid_t> look_in_tables(const End& local, const End& remote) {
  std::optional<uid_t> listening;
  bool not_accepted = false;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      char here[64], there[64];
      unsigned state = 0, uid = 0;
      unsigned long inode = 0;
      if (std::sscanf(line.c_str(), " %*[^:]: %63s %63s %x %*s %*s %*s %u %*s %lu", here, there, &state, &uid,
                      &inode) != 5)
        continue;
      const auto own = parse_end(here), other = parse_end(there);
      if (!own || !other || own->port != local.port) continue;
      if (state == TCP_LISTEN && inode != 0) {
        const bool any = own->address == std::array<uint32_t, 4>{};
        if (*own == local || any) listening = uid;
      } else if (*own == local && *other == remote && (state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT)) {
        if (inode != 0) return uid;
        not_accepted = true;
      }
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
