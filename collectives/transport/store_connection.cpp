#include "collectives/transport/store_connection.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "collectives/transport/abortable_store.h"
#include "collectives/transport/interposed.h"
#include "collectives/transport/tcp_store.h"
#include "collectives/transport/transport_text.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {
namespace {

const c10d::TCPStore* tcp_store(const Store& store) {
  c10d::Store* inner = store.get();
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(inner)) inner = prefixed->getUnderlyingStore().get();
  return dynamic_cast<c10d::TCPStore*>(inner);
}

}  // namespace

StoreConnection::StoreConnection(Store store, bool own_user_only)
    : origin_(std::move(store)), own_user_only_(own_user_only) {}

Store StoreConnection::abortable(Store store) const {
  return c10::make_intrusive<AbortableStore>(std::move(store), [interrupted = interrupted_] {
    if (*interrupted) throw Error("the wait in the store was interrupted");
  });
}

void StoreConnection::connect(std::chrono::milliseconds at_most) {
  if (tcp_store(origin_)) return connect_tcp(at_most);
  store_ = abortable(origin_->clone());
}

void StoreConnection::connect_tcp(std::chrono::milliseconds at_most) {
  const c10d::TCPStore& server = *tcp_store(origin_);
  const std::string name = fmt::format("the store at {}:{}", server.getHost(), server.getPort());
  const MutedWarnings quiet;  // c10d logs a refused connection with its own stack
  ThreadSockets sockets;
  HeldSockets probe;
  in6_addr ignored;
  const char* host = server.getHost().c_str();
  const bool numeric = inet_pton(AF_INET, host, &ignored) == 1 || inet_pton(AF_INET6, host, &ignored) == 1;
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  sockets.connect_once(deadline, /*one_address=*/numeric);
  sockets.limit_receives(deadline);
  const auto set_connecting = [&](ThreadSockets* value) {
    std::lock_guard lock(mutex_);
    connecting_ = value;
    if (value && *interrupted_) value->interrupt();
  };
  set_connecting(&sockets);
  try {
    // Without the interposer c10d would try for minutes to reach a store that is gone, and can't be interrupted.
    if (!interposed()) probe_store(sockets, server.getHost(), server.getPort(), probe);
    store_ = interposed() ? origin_->clone() : abortable(origin_->clone());
  } catch (const std::exception&) {
    set_connecting(nullptr);
    if (*interrupted_) throw Error(fmt::format("connecting to {} was interrupted", name));
    throw Error(
        fmt::format("{} can't be reached any more: {}. Did the process that holds it (rank 0, or the launcher) end?",
                    name, transport_text(std::current_exception())));
  }
  set_connecting(nullptr);
  std::lock_guard lock(mutex_);
  if (interposed())
    for (const TcpSocket& socket : sockets.open()) sockets_.hold(socket);
  if (*interrupted_) sockets_.shut_down();
  if (own_user_only_) (interposed() ? sockets_ : probe).require_own_peers(name);
}

void StoreConnection::interrupt() noexcept {
  std::lock_guard lock(mutex_);
  if (!interrupted_->exchange(true)) muted_.emplace();
  if (connecting_) connecting_->interrupt();
  sockets_.shut_down();
}

}  // namespace lockstep::dist
