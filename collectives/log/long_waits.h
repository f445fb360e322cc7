// Notices that a rank has been in a collective for long. The threads that enter and leave collectives do not read the
// clock: a thread that enters one wakes the watcher if no look is due. The watcher looks after the time limit, and
// again as long as collectives are in flight. While the rank is in none, the watcher sleeps.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "collectives/log/collective_record.h"

namespace lockstep::dist {

class LogMapping;

class LongWaits {
 public:
  /// `wake` is called on a thread that enters a collective, and must make the watcher's thread call look() soon.
  LongWaits(const LogMapping& log, int64_t limit_ns, std::function<void()> wake);

  /// A collective was entered just now.
  void entered() {
    if (!looking_.load(std::memory_order_seq_cst) && !looking_.exchange(true)) wake_();
  }

  struct Look {
    std::vector<CollectiveRecord> waits;  // that have lasted for the limit by now; each is returned once
    std::optional<int64_t> next_ns;  // when to look again (CLOCK_MONOTONIC); empty: after wake() is called
  };
  /// The watcher calls it, always on the same thread. `now_ns` is CLOCK_MONOTONIC.
  Look look(int64_t now_ns);

 private:
  const LogMapping& log_;
  const int64_t limit_ns_;
  const std::function<void()> wake_;
  std::atomic<bool> looking_{false};
  uint64_t oldest_ = 0;  // all entries before it are done
  uint64_t seen_ = 0;  // entries at the last look
  std::set<uint64_t> reported_;
};

}  // namespace lockstep::dist
