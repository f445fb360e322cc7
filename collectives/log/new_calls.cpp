#include "collectives/log/new_calls.h"

#include <algorithm>
#include <utility>

#include "collectives/log/call_digests.h"

namespace lockstep::dist {

using namespace log_layout;

namespace {

/// Returns the incarnation of the group whose slot entry `number` has; 0 where the entry is of a group that had the
/// slot before, or of its earlier connections.
uint64_t incarnation_of(const LogMapping& log, uint32_t slot, uint64_t number) {
  const Group& group = log.group(std::min(slot, kGroupCapacity - 1));
  const uint64_t incarnation = group.incarnation.load();
  const uint64_t first = group.first_entry.load();
  return group.incarnation.load() == incarnation && number >= first ? incarnation : 0;
}

}  // namespace

std::vector<NewCall> NewCalls::take() {
  const LogMapping& log = log_.mapping();
  std::vector<NewCall> calls;
  const uint64_t end = log_.entries();
  for (next_ = std::max(next_, end - std::min<uint64_t>(end, kEntryCapacity)); next_ < end; ++next_) {
    const Entry& entry = log.entry(next_);
    if (entry.sequence.load(std::memory_order_acquire) < 2 * next_ + 2) break;  // being written: it is read next time
    const bool is_message = (entry.flags & kPointToPoint) != 0;
    NewCall call{.incarnation = incarnation_of(log, entry.group, next_), .seq = entry.seq};
    call.signature = signature_of(log_, next_);  // last: it is 0 where the entry has changed meanwhile
    if (!is_message && call.incarnation != 0 && call.signature != 0) calls.push_back(call);
  }
  return calls;
}

std::optional<FoundCall> find_call(const CollectiveLogReader& log, uint64_t incarnation, int64_t seq, size_t recent) {
  const uint64_t end = log.entries();
  for (uint64_t i = end; i-- > end - std::min<uint64_t>(end, kEntryCapacity);) {
    const Entry& entry = log.mapping().entry(i);
    if (entry.seq != seq || (entry.flags & kPointToPoint) != 0 ||
        incarnation_of(log.mapping(), entry.group, i) != incarnation)
      continue;
    const uint64_t signature = signature_of(log, i);
    if (auto record = log.record(i); record && signature != 0)
      return FoundCall{.call = std::move(*record), .signature = signature, .recent = log.last(recent)};
  }
  return std::nullopt;
}

namespace {
const Group* group_of(const LogMapping& log, uint64_t incarnation) {
  for (uint32_t slot = 0; slot < std::min(log.header().group_count.load(), kGroupCapacity); ++slot)
    if (log.group(slot).incarnation == incarnation) return &log.group(slot);
  return nullptr;
}
}  // namespace

std::vector<int> ranks_of(const CollectiveLogReader& log, uint64_t incarnation) {
  const Group* const group = group_of(log.mapping(), incarnation);
  return group ? group->named_ranks() : std::vector<int>();
}

int size_of(const CollectiveLogReader& log, uint64_t incarnation) {
  const Group* const group = group_of(log.mapping(), incarnation);
  return group ? group->size : 0;
}

}  // namespace lockstep::dist
