// A connection of one's own to the store, in which a wait can be ended from another thread.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "dist/dist.h"
#include "dist/group_sockets.h"
#include "dist/muted_warnings.h"

namespace lockstep::dist {

class StoreConnection {
 public:
  explicit StoreConnection(const Store& store);
  const Store& store() const { return store_; }
  /// The call that is under way on store() throws, and so do all that follow. From any thread, returns at once.
  void interrupt() noexcept;

 private:
  Store store_;
  HeldSockets sockets_;
  std::optional<MutedWarnings> muted_;  // from interrupt() on
  // For a store without connections (a file, the process's memory), whose waits ask.
  const std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace lockstep::dist
