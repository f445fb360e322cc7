#include "collectives/log/long_waits.h"

#include <algorithm>

#include "collectives/log/collective_log.h"

namespace lockstep::dist {

LongWaits::LongWaits(const LogMapping& log, int64_t limit_ns, std::function<void()> wake)
    : log_(log), limit_ns_(limit_ns), wake_(std::move(wake)) {}

LongWaits::Look LongWaits::look(int64_t now_ns) {
  Look look;
  const log_layout::Header& header = log_.header();
  const uint64_t end = header.next_entry.load(std::memory_order_seq_cst);
  const auto again = [&](int64_t when) { look.next_ns = std::min(look.next_ns.value_or(when), when); };
  std::optional<uint64_t> oldest;
  const uint64_t kept = end - std::min<uint64_t>(end, log_layout::kEntryCapacity);
  for (uint64_t i = std::max(oldest_, kept); i < end; ++i) {
    const log_layout::Entry& entry = log_.entry(i);
    const bool stands = entry.sequence.load(std::memory_order_acquire) == 2 * i + 2;
    if (stands && entry.state.load(std::memory_order_acquire) != i * 4) continue;
    if (!oldest) oldest = i;
    const auto record = stands ? CollectiveLogReader(log_).record(i) : std::nullopt;
    if (!record) {  // it is being written
      again(now_ns + limit_ns_);
    } else if (record->state == CollectiveState::entered && !reported_.contains(i)) {
      if (now_ns - record->entered_ns < limit_ns_) {
        again(record->entered_ns + limit_ns_);
      } else {
        reported_.insert(i);
        look.waits.push_back(*record);
      }
    }
  }
  oldest_ = oldest.value_or(end);
  reported_.erase(reported_.begin(), reported_.lower_bound(oldest_));
  // Where collectives come one after the other, the next one need not wake anybody.
  if (seen_ != end) again(now_ns + limit_ns_);
  seen_ = end;
  if (look.next_ns) return look;
  looking_.store(false, std::memory_order_seq_cst);
  // A collective that was entered before that does not wake anybody.
  if (header.next_entry.load(std::memory_order_seq_cst) != end && !looking_.exchange(true)) again(now_ns + limit_ns_);
  return look;
}

}  // namespace lockstep::dist
