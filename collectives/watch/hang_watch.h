// Notices a proven hang: this rank is in a collective, and a rank that it needs to end it has left the cell without
// entering it.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "collectives/log/collective_log.h"

namespace lockstep::dist {

class HangWatch {
 public:
  using Callback = std::function<void(const CollectiveRecord& record, const RankSet& missing)>;

  explicit HangWatch(const LogMapping& log) : log_(log) {}

  void set_callback(Callback callback);
  void peers_left(int64_t cell, const RankSet& ranks, const std::map<std::string, int64_t>& progress);

  /// Whether entered() has to be called. It costs one load, so it can be asked for every collective.
  bool active() const { return active_.load(std::memory_order_seq_cst); }
  /// This rank entered that collective just now.
  void entered(uint64_t entry);

 private:
  struct Departure {
    int64_t cell = 0;
    std::map<std::string, int64_t> progress;
  };

  void report(const CollectiveRecord& record, std::unique_lock<std::mutex>& lock);

  const LogMapping& log_;
  std::atomic<bool> active_ = false;
  std::mutex mutex_;
  std::map<int, Departure> departures_;
  std::set<std::string> reported_;  // "default #12 0,2": one report per collective and set of ranks
  Callback callback_;
};

}  // namespace lockstep::dist
