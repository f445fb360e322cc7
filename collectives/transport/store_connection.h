// A separate connection to the store, in which another thread can end a wait.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "collectives/transport/group_sockets.h"
#include "collectives/transport/muted_warnings.h"
#include "collectives/transport/thread_sockets.h"

namespace lockstep::dist {

using Store = c10::intrusive_ptr<c10d::Store>;

class StoreConnection {
 public:
  /// Prepares a connection to where `store` is. Nothing is connected yet.
  explicit StoreConnection(Store store, bool own_user_only = false);
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  /// Connects; ends within `at_most`, and at once when the store is gone or interrupt() is called. Throws Error saying
  /// which, and with `own_user_only` also where a process of another user has the store's port.
  void connect(std::chrono::milliseconds at_most);
  /// Needs connect().
  const Store& store() const { return store_; }
  /// Makes the call that is under way on store(), or in connect(), throw, and all that follow. From any thread, returns
  /// at once.
  void interrupt() noexcept;

 private:
  void connect_tcp(std::chrono::milliseconds at_most);
  Store abortable(Store store) const;

  const Store origin_;
  const bool own_user_only_;
  Store store_;
  std::mutex mutex_;  // all of the following
  HeldSockets sockets_;
  ThreadSockets* connecting_ = nullptr;  // while connect() is under way
  std::optional<MutedWarnings> muted_;  // from interrupt() on
  // The waits of an AbortableStore read it.
  const std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace lockstep::dist
