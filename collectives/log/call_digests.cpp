#include "collectives/log/call_digests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace lockstep::dist {

using namespace log_layout;

namespace {

constexpr int64_t kBlock = 64;

int64_t block_of(int64_t seq) { return (seq - 1) / kBlock; }

/// Makes the digests of a group from its calls, the newest first.
class Digest {
 public:
  Digest(const std::string& group, const std::string& key)
      : result_{.key = key, .group = group, .calls = {}, .blocks = {}} {}

  void add(int64_t seq, uint64_t signature) {
    // A program may have made the group anew: numbers begin again then.
    is_over_ = is_over_ || (next_ && seq != *next_);
    if (is_over_) return;
    next_ = seq - 1;
    if (result_.newest == 0) result_.newest = seq;
    if (result_.newest - seq < kBlock) result_.calls.push_back(signature);
    if (block_of(seq + 1) != block_of(seq)) block_ = 0;  // begins, at its end
    if (!block_) return;
    *block_ = (*block_ ^ signature) * 0x9E3779B97F4A7C15ull;
    *block_ ^= *block_ >> 29;
    if (block_of(seq - 1) != block_of(seq) || seq == 1) result_.blocks[block_of(seq)] = *block_;
  }

  CallDigests take() { return std::move(result_); }

 private:
  CallDigests result_;
  std::optional<int64_t> next_;  // the number that comes before those that were added
  std::optional<uint64_t> block_;  // of the block that is under way; none: its newest calls are not there yet
  bool is_over_ = false;
};

}  // namespace

uint64_t signature_of(const CollectiveLogReader& log, uint64_t entry) {
  const Entry& of = log.mapping().entry(entry);
  const uint64_t signature = of.signature;
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool is_whole = of.sequence.load(std::memory_order_relaxed) == 2 * entry + 2;
  return is_whole && log.mapping().header().compares.load(std::memory_order_relaxed) != 0 ? signature : 0;
}

std::vector<CallDigests> call_digests(const CollectiveLogReader& log) {
  const LogMapping& mapping = log.mapping();
  std::map<uint32_t, Digest> digests;  // by slot
  for (uint32_t slot = 0; slot < std::min(mapping.header().group_count.load(), kGroupCapacity); ++slot) {
    const Group& group = mapping.group(slot);
    if (!group.open() || group.group_rank < 0) continue;
    const std::string name(group.name, ::strnlen(group.name, sizeof group.name));
    const std::span<const int32_t> ranks(group.ranks, std::clamp<size_t>(group.size, 0, kRanksPerGroup));
    digests.try_emplace(slot, name, fmt::format("{} #{} {}", name, group.generation, fmt::join(ranks, ",")));
  }
  const uint64_t end = log.entries();
  for (uint64_t i = end; i-- > end - std::min<uint64_t>(end, kEntryCapacity);) {
    const Entry& entry = mapping.entry(i);
    const auto group = digests.find(entry.group);
    const int64_t seq = entry.seq;
    if (group == digests.end() || (entry.flags & kPointToPoint) != 0) continue;
    if (const uint64_t signature = signature_of(log, i)) group->second.add(seq, signature);
  }
  std::vector<CallDigests> result;
  for (auto& [slot, digest] : digests)
    if (CallDigests each = digest.take(); each.newest > 0) result.push_back(std::move(each));
  return result;
}

std::optional<DifferingCalls> differing_calls(const std::map<int, std::vector<CallDigests>>& digests) {
  using Calls = std::map<std::pair<std::string, int64_t>, uint64_t>;
  Calls calls, blocks;  // by key and number
  std::optional<DifferingCalls> found;
  const auto compare = [&](Calls& known, const CallDigests& of, int64_t number, uint64_t digest, int64_t first,
                           int64_t last) {
    const bool is_alike = known.try_emplace({of.key, number}, digest).first->second == digest;
    if (!is_alike && (!found || last < found->last)) found = DifferingCalls{of.group, first, last};
  };
  for (const auto& [rank, groups] : digests) {
    for (const CallDigests& each : groups) {
      for (size_t i = 0; i < each.calls.size(); ++i) {
        const int64_t seq = each.newest - static_cast<int64_t>(i);
        compare(calls, each, seq, each.calls[i], seq, seq);
      }
      for (const auto& [block, digest] : each.blocks)
        compare(blocks, each, block, digest, block * kBlock + 1, (block + 1) * kBlock);
    }
  }
  return found;
}

}  // namespace lockstep::dist
