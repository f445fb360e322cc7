#include "dist/store_connection.h"

#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "dist/abortable_store.h"

namespace lockstep::dist {
namespace {

bool is_tcp(const Store& store) {
  c10d::Store* inner = store.get();
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(inner)) inner = prefixed->getUnderlyingStore().get();
  return dynamic_cast<c10d::TCPStore*>(inner);
}

std::mutex clone_mutex;  // which socket a clone opened is seen by comparing before and after

}  // namespace

StoreConnection::StoreConnection(const Store& store) {
  if (!is_tcp(store)) {
    store_ = c10::make_intrusive<AbortableStore>(store->clone(), [interrupted = interrupted_] {
      if (*interrupted) throw Error("the wait in the store was interrupted");
    });
    return;
  }
  const std::lock_guard lock(clone_mutex);
  std::set<int> before;
  for (const TcpSocket& socket : open_tcp_sockets()) before.insert(socket.fd);
  store_ = store->clone();
  for (const TcpSocket& socket : open_tcp_sockets())
    if (!before.contains(socket.fd) && !socket.remote.empty()) sockets_.hold(socket);
}

void StoreConnection::interrupt() noexcept {
  if (!interrupted_->exchange(true)) muted_.emplace();
  sockets_.shut_down();
}

}  // namespace lockstep::dist
