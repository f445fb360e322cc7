#include "collectives/transport/tcp_store.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/transport/interposed.h"
#include "collectives/transport/own_accepts.h"
#include "protocol/descriptor.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {
namespace {

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first) freeaddrinfo(first);
  }
};

AddressList resolve(const std::string& host, int port) {
  AddressList list;
  const addrinfo hints{.ai_flags = AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list.first);
  if (error) throw ArgumentError(fmt::format("the address '{}' can't be resolved: {}", host, gai_strerror(error)));
  return list;
}

int listen_on(const std::string& host, int port) {
  const AddressList list = resolve(host, port);
  int last_error = 0;
  for (const addrinfo* each = list.first; each; each = each->ai_next) {
    Descriptor fd(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd && bind(fd.get(), each->ai_addr, each->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0)
      return fd.release();
    last_error = errno;
  }
  if (last_error == EADDRNOTAVAIL)
    throw ArgumentError(
        fmt::format("MASTER_ADDR is {}, which is no address of this machine; it must be the machine of rank 0", host));
  if (last_error == EADDRINUSE)
    throw ArgumentError(fmt::format("port {} of {} is in use; choose another MASTER_PORT", port, host));
  throw ArgumentError(fmt::format("rank 0 can't listen on {}:{}: {}", host, port, strerror(last_error)));
}

TcpStore make_store(const std::string& host, int port, int listener, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = listener >= 0;
  options.waitWorkers = false;
  options.timeout = timeout;
  if (listener >= 0) options.masterListenFd = listener;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// Returns the address of a listening socket, as text, and its port.
std::pair<std::string, int> address_of(int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    throw ArgumentError(fmt::format("descriptor {} is no socket that a store can listen on", listener));
  return {host, std::stoi(port)};
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1)
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  return host == "localhost";
}

TcpStore serve_store(int listener, std::chrono::milliseconds timeout, bool own_user_only) {
  const auto [host, port] = address_of(listener);
  // Nobody has been accepted yet: that is for the store's thread, which does not run.
  if (own_user_only || is_loopback(host)) accept_own_user_only(listener);
  return make_store(host, port, listener, timeout);
}

TcpStore serve_store(const std::string& host, int port, std::chrono::milliseconds timeout, bool own_user_only) {
  return serve_store(listen_on(host, port), timeout, own_user_only);
}

void probe_store(ThreadSockets& sockets, const std::string& host, int port, HeldSockets& held) {
  const AddressList list = resolve(host, port);
  for (const addrinfo* each = list.first; each; each = each->ai_next) {
    const Descriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) throw Error(std::strerror(errno));
    const std::string address(reinterpret_cast<const char*>(each->ai_addr), each->ai_addrlen);
    const auto connect_it = [&] { return ::connect(socket.get(), each->ai_addr, each->ai_addrlen); };
    if (sockets.connect(socket.get(), address, connect_it) == 0) return held.hold({.fd = socket.get()});
  }
  throw Error(sockets.failure());
}

TcpStore connect_store(const std::string& host, int port, std::chrono::milliseconds timeout, bool own_user_only) {
  try {
    ThreadSockets sockets;
    HeldSockets checked;
    // c10d counts whole seconds while it connects; less than one would be none.
    const auto limit =
        std::max<std::chrono::milliseconds>(std::chrono::ceil<std::chrono::seconds>(timeout), std::chrono::seconds(1));
    const auto deadline = std::chrono::steady_clock::now() + limit;
    sockets.limit_receives(deadline);
    TcpStore store = make_store(host, port, -1, limit);
    store->setTimeout(timeout);
    if (!own_user_only) return store;
    if (interposed()) {
      for (const TcpSocket& socket : sockets.open()) checked.hold(socket);
    } else {  // the store's own connection is not known
      sockets.connect_once(deadline, /*one_address=*/false);
      probe_store(sockets, host, port, checked);
    }
    checked.require_own_peers(fmt::format("the store at {}:{}", host, port));
    return store;
  } catch (const c10::Error& error) {
    throw Error(fmt::format(
        "the store at {}:{} can't be reached: {}. Is rank 0 running, and are MASTER_ADDR and MASTER_PORT the "
        "same on all ranks?",
        host, port, error.what_without_backtrace()));
  }
}

}  // namespace lockstep::dist
