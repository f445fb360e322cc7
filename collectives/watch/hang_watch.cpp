#include "collectives/watch/hang_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::dist {

void HangWatch::set_callback(Callback callback) {
  std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
}

void HangWatch::peers_left(int64_t cell, const RankSet& ranks, const std::map<std::string, int64_t>& progress) {
  std::unique_lock lock(mutex_);
  std::erase_if(departures_, [&](const auto& each) { return each.second.cell < cell; });
  if (departures_.empty()) reported_.clear();
  for (const int rank : ranks) departures_[rank] = {cell, progress};
  active_.store(true, std::memory_order_seq_cst);  // before looking: who enters now looks, too
  for (const CollectiveRecord& record : CollectiveLogReader(log_).in_flight()) report(record, lock);
}

void HangWatch::entered(uint64_t entry) {
  const auto record = CollectiveLogReader(log_).record(entry);
  std::unique_lock lock(mutex_);
  if (record && record->state == CollectiveState::entered) report(*record, lock);
}

std::vector<int> HangWatch::ranks_of(const std::string& group) const {
  const uint32_t count = std::min(log_.header().group_count.load(), log_layout::kGroupCapacity);
  for (uint32_t i = 0; i < count; ++i) {
    const log_layout::Group& each = log_.group(i);
    if (!each.open() || group != each.name) continue;
    return each.named_ranks();
  }
  return {};
}

void HangWatch::report(const CollectiveRecord& record, std::unique_lock<std::mutex>& lock) {
  if (record.point_to_point) return;
  // Gloo does nothing for tensors without elements: no rank waits for another.
  if (record.bytes == 0 && record.tensor_count > 0) return;
  const int64_t current_cell = log_.header().cell;
  RankSet missing;
  for (int rank : ranks_of(record.group)) {
    const auto found = departures_.find(rank);
    if (found == departures_.end() || found->second.cell != current_cell) continue;
    const auto entered = found->second.progress.find(record.group);
    if (entered == found->second.progress.end() || entered->second < record.seq) missing.insert(rank);
  }
  if (missing.empty() || !reported_.insert(fmt::format("{} #{} {}", record.group, record.seq, missing.str())).second)
    return;
  if (const Callback callback = callback_) {
    lock.unlock();
    callback(record, missing);
    lock.lock();
  }
}

}  // namespace lockstep::dist
