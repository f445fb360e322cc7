#include "collectives/log/call_digests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

namespace lockstep::dist {

using namespace log_layout;

namespace {

constexpr int64_t kBlock = 64;
constexpr size_t kMostTransfers = 64;  // of a rank and group
constexpr uint8_t kObjects = 255;

int64_t block_of(int64_t seq) { return (seq - 1) / kBlock; }

/// Makes the digests of a group from its calls, the newest first.
class Digest {
 public:
  Digest(const std::string& name, const std::string& key, const Group& group)
      : result_{.key = key, .group = name, .calls = {}, .blocks = {}},
        last_before_(group.last_before),
        last_entered_(group.last_entered) {}

  /// Returns false where the call is of an earlier generation of the group, or of a group that had its place in the log
  /// before it: numbers begin again then.
  bool add(int64_t seq, uint64_t signature) {
    is_over_ = is_over_ || seq <= last_before_ || (next_ && seq != *next_);
    if (is_over_ || (!next_ && seq > last_entered_)) return false;
    next_ = seq - 1;
    if (result_.newest == 0) result_.newest = seq;
    if (result_.newest - seq < kBlock) result_.calls.push_back(signature);
    if (block_of(seq + 1) != block_of(seq)) block_ = 0;  // begins, at its end
    if (!block_) return true;
    *block_ = (*block_ ^ signature) * 0x9E3779B97F4A7C15ull;
    *block_ ^= *block_ >> 29;
    if (block_of(seq - 1) != block_of(seq) || seq == 1) result_.blocks[block_of(seq)] = *block_;
    return true;
  }

  CallDigests take() { return std::move(result_); }

 private:
  CallDigests result_;
  const int64_t last_before_, last_entered_;  // of the group
  std::optional<int64_t> next_;  // the number that comes before those that were added
  std::optional<uint64_t> block_;  // of the block that is under way; none: its newest calls are not there yet
  bool is_over_ = false;
};

/// Collects the transfers of a group, from its entries, the newest first.
class Transfers {
 public:
  Transfers(const LogMapping& mapping, const Group& group)
      : mapping_(mapping),
        group_(group),
        ranks_(group.named_ranks()),
        me_(group.group_rank),
        receives_from_any_(group.received_from_any.load() > 0) {}

  void add(uint64_t number) {
    const Entry& entry = mapping_.entry(number);
    std::vector<Transfer> found = (entry.flags & kPointToPoint) != 0 ? message(entry, number) : parts(entry, number);
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool is_whole = entry.sequence.load(std::memory_order_relaxed) == 2 * number + 2;
    const auto has_failed = static_cast<uint64_t>(EntryState::failed);  // a mismatch that the rank has seen itself
    if (!is_whole || entry.state.load() % 4 == has_failed || found.size() + all_.size() > kMostTransfers) return;
    std::ranges::move(found, std::back_inserter(all_));
  }

  std::vector<Transfer> take() { return std::move(all_); }

 private:
  bool has(int group_rank) const { return group_rank >= 0 && static_cast<size_t>(group_rank) < ranks_.size(); }

  /// Whether it belongs to the group as it is now: numbers begin again where the program has made it anew.
  bool is_of_this_group(int from, int to, int64_t seq, int64_t count) {
    const auto [next, is_first] = next_.try_emplace({from, to}, seq);
    if (seq > count || next->second != seq) return false;
    --next->second;
    return true;
  }

  std::vector<Transfer> message(const Entry& entry, uint64_t number) {
    const auto op = static_cast<CollectiveOp>(entry.op);
    const bool sends = op == CollectiveOp::send || op == CollectiveOp::send_object_list;
    if (entry.root < 0 || !has(me_) || (!sends && receives_from_any_)) return {};
    const int me = ranks_[static_cast<size_t>(me_)];
    const bool is_by_order = (entry.flags & kOnDevice) != 0;  // NCCL knows no tags
    Transfer transfer{.kind = is_by_order ? Transfer::by_order : Transfer::by_tag,
                      .from = sends ? me : entry.root,
                      .to = sends ? entry.root : me,
                      .tag = is_by_order ? 0 : entry.tag,
                      .number = entry.tag_seq,
                      .amount = entry.dtype == kObjects ? -1 : entry.bytes,
                      .dtype = entry.dtype,
                      .entry = number};
    const auto peer = std::ranges::find(ranks_, entry.root);
    if (transfer.number <= 0 || transfer.from == transfer.to || peer == ranks_.end()) return {};
    const int64_t count = (sends ? group_.sent : group_.received)[peer - ranks_.begin()].load();
    return is_of_this_group(transfer.from, transfer.to, entry.seq, count) ? std::vector{transfer}
                                                                          : std::vector<Transfer>();
  }

  std::vector<Transfer> parts(const Entry& entry, uint64_t number) {
    const size_t size = ranks_.size();
    if (entry.word_count != 2 * size || !has(me_)) return {};
    std::vector<Transfer> found;
    for (size_t peer = 0; peer < size; ++peer) {
      if (static_cast<int>(peer) == me_) continue;
      const int me = ranks_[static_cast<size_t>(me_)], them = ranks_[peer];
      for (const bool sends : {true, false})
        found.push_back({.kind = Transfer::part,
                         .from = sends ? me : them,
                         .to = sends ? them : me,
                         .number = entry.seq,
                         .amount = mapping_.word(entry.word_begin + (sends ? peer : size + peer)).load(),
                         .entry = number});
    }
    // The ring of words may have come round.
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool are_there = mapping_.header().next_word.load() <= entry.word_begin + kWordCapacity;
    return are_there ? found : std::vector<Transfer>();
  }

  const LogMapping& mapping_;
  const Group& group_;
  const std::vector<int> ranks_;  // of the default group
  const int me_;
  const bool receives_from_any_;  // which takes messages of which the number is not known
  std::map<std::pair<int, int>, int64_t> next_;  // by sender and receiver: the number that comes before those seen
  std::vector<Transfer> all_;
};

std::string amount_text(const Transfer& transfer) {
  if (transfer.amount < 0) return "objects";
  if (transfer.kind == Transfer::part)
    return fmt::format("{} element{}", transfer.amount, transfer.amount == 1 ? "" : "s");
  return fmt::format("{} byte{} of {}", transfer.amount, transfer.amount == 1 ? "" : "s",
                     dtype_name(static_cast<uint8_t>(transfer.dtype)));
}

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
  std::map<uint32_t, Transfers> transfers;
  const bool compares = mapping.header().compares.load(std::memory_order_relaxed) != 0;
  for (uint32_t slot = 0; slot < std::min(mapping.header().group_count.load(), kGroupCapacity); ++slot) {
    const Group& group = mapping.group(slot);
    if (!group.open() || group.group_rank < 0) continue;
    const std::string name(group.name, ::strnlen(group.name, sizeof group.name));
    if (compares && group.size <= kRanksPerGroup) transfers.try_emplace(slot, mapping, group);
    const std::string ranks = group.step == 0 ? fmt::format("{}", fmt::join(group.named_ranks(), ","))
                                              : fmt::format("{}+{}", group.first, group.step);
    digests.try_emplace(
        slot, name,
        fmt::format("{} #{} {:x} {} of {}", name, group.generation, group.incarnation.load(), group.size, ranks),
        group);
  }
  const uint64_t end = log.entries();
  for (uint64_t i = end; i-- > end - std::min<uint64_t>(end, kEntryCapacity);) {
    const Entry& entry = mapping.entry(i);
    const auto group = digests.find(entry.group);
    const int64_t seq = entry.seq;
    if (group == digests.end()) continue;
    if ((entry.flags & kPointToPoint) == 0) {
      const uint64_t signature = signature_of(log, i);
      if (signature == 0 || !group->second.add(seq, signature)) continue;
    }
    if (const auto of = transfers.find(entry.group); of != transfers.end()) of->second.add(i);
  }
  std::vector<CallDigests> result;
  for (auto& [slot, digest] : digests) {
    CallDigests each = digest.take();
    if (const auto of = transfers.find(slot); of != transfers.end()) each.transfers = of->second.take();
    if (each.newest > 0 || !each.transfers.empty()) result.push_back(std::move(each));
  }
  return result;
}

std::vector<DifferingCalls> differing_calls(const std::map<int, std::vector<CallDigests>>& digests) {
  using Calls = std::map<std::pair<std::string, int64_t>, uint64_t>;
  Calls calls, blocks;  // by key and number
  std::map<std::tuple<int64_t, int64_t, std::string>, DifferingCalls> found;  // by last, first and key
  const auto compare = [&](Calls& known, const CallDigests& of, int64_t number, uint64_t digest, int64_t first,
                           int64_t last) {
    const bool is_alike = known.try_emplace({of.key, number}, digest).first->second == digest;
    if (!is_alike) found.try_emplace({last, first, of.key}, DifferingCalls{of.key, of.group, first, last});
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
  std::vector<DifferingCalls> result;
  for (auto& [order, each] : found) result.push_back(std::move(each));
  return result;
}

std::string DifferingCalls::str() const {
  return first == last
             ? fmt::format("#{} of group {} is not the same collective on all ranks", first, group)
             : fmt::format("#{} to #{} of group {} are not the same collectives on all ranks", first, last, group);
}

std::string DifferingTransfer::str(const std::string& place_of_sender, const std::string& place_of_receiver) const {
  const auto place = [](const std::string& of) { return of.empty() ? "" : fmt::format(" ({})", of); };
  const std::string what =
      sent.kind == Transfer::part
          ? fmt::format("all_to_all #{}", sent.number)
          : fmt::format("message #{} between them{}", sent.number,
                        sent.kind == Transfer::by_tag ? fmt::format(" with tag {}", sent.tag) : "");
  return fmt::format("rank {} sends {} to rank {}{}, which expects {}{}: {} of group {}", sent.from, amount_text(sent),
                     sent.to, place(place_of_sender), amount_text(expected), place(place_of_receiver), what, group);
}

std::vector<DifferingTransfer> differing_transfers(const std::map<int, std::vector<CallDigests>>& digests) {
  std::map<std::tuple<std::string, int, int, int, int, int64_t>, const Transfer*> sent;
  const auto key = [](const CallDigests& group, const Transfer& of) {
    return std::tuple(group.key, of.kind, of.from, of.to, of.tag, of.number);
  };
  for (const auto& [rank, groups] : digests)
    for (const CallDigests& group : groups)
      for (const Transfer& each : group.transfers)
        if (each.from == rank) sent[key(group, each)] = &each;
  std::vector<DifferingTransfer> found;
  for (const auto& [rank, groups] : digests)
    for (const CallDigests& group : groups)
      for (const Transfer& each : group.transfers) {
        const auto other = each.to == rank ? sent.find(key(group, each)) : sent.end();
        if (other != sent.end() && !other->second->agrees_with(each))
          found.push_back({group.key, group.group, *other->second, each});
      }
  std::ranges::stable_sort(found, {}, [](const DifferingTransfer& each) { return each.expected.number; });
  return found;
}

}  // namespace lockstep::dist
