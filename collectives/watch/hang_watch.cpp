#include "collectives/watch/hang_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/log/needed_ranks.h"

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

void HangWatch::report(const CollectiveRecord& record, std::unique_lock<std::mutex>& lock) {
  if (record.point_to_point) return;
  const int64_t current_cell = log_.header().cell;
  const auto departed_before = [&](int rank, int64_t seq) {
    const auto found = departures_.find(rank);
    if (found == departures_.end() || found->second.cell != current_cell) return false;
    const auto entered = found->second.progress.find(record.group);
    return entered == found->second.progress.end() || entered->second < seq;
  };
  if (std::ranges::none_of(departures_, [&](const auto& each) { return departed_before(each.first, record.seq); }))
    return;
  RankSet missing;
  for (const LoggedGroup& group : CollectiveLogReader(log_).groups()) {
    if (group.name != record.group) continue;
    const Needs needs = needs_of(record, group, log_.header().rank);
    for (const int rank : needs.ranks)
      if (departed_before(rank, record.seq)) missing.insert(rank);
    if (departed_before(needs.earlier.rank, needs.earlier.seq)) missing.insert(needs.earlier.rank);
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
