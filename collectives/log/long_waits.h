// Notices that a rank sits in a collective for long, without a look at the clock by those who enter and leave collectives. Whoever
// enters one sees that somebody looks, or wakes him; he looks once a limit later, and again while collectives are entered.
// While a rank enters none, nobody looks.
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
  /// `wake` is called on a thread that enters a collective, and has look() called soon on the thread that looks.
  LongWaits(const LogMapping& log, int64_t limit_ns, std::function<void()> wake);

  /// A collective has just been entered.
  void entered() {
    if (!looking_.load(std::memory_order_seq_cst) && !looking_.exchange(true)) wake_();
  }

  struct Look {
    std::vector<CollectiveRecord> waits;  // that have lasted for the limit by now; each is told once
    std::optional<int64_t> next_ns;  // when to look again (CLOCK_MONOTONIC); nothing: when wake() was called
  };
  /// On one thread. `now_ns`: CLOCK_MONOTONIC.
  Look look(int64_t now_ns);

 private:
  const LogMapping& log_;
  const int64_t limit_ns_;
  const std::function<void()> wake_;
  std::atomic<bool> looking_{false};
  uint64_t oldest_ = 0;  // all entries before it are done
  uint64_t seen_ = 0;  // entries at the last look
  std::set<uint64_t> told_;
};

}  // namespace lockstep::dist
