// The layout of the collective log in memory: one file (or anonymous memory) per rank, which that rank writes and which
// any thread and any process of the same user reads at any time, also after the rank was killed. This is version 9;
// docs/dist.md describes it in prose.
//
// Regions, in order: Header, groups, signatures (kSignatureCapacity per group), entries (a ring), words (a ring), code
// ranges, device times (a ring), call sites by name, messages. All numbers are of the machine's byte order. Plain C
// layout; fields that change while others read are atomics.
//
// Reading an entry without a lock: `sequence` is 2i+1 while entry number i is being written and 2i+2 when it is
// complete. A reader copies the entry, then reads `sequence` again. An odd value that stays is the entry that a killed
// rank was writing.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::dist::log_layout {

inline constexpr char kMagic[8] = {'L', 'S', 'C', 'O', 'L', 'L', 'O', 'G'};
inline constexpr uint32_t kVersion = 9;
inline constexpr uint32_t kGroupCapacity = 256;
inline constexpr uint32_t kSignatureCapacity = 128;  // per group
inline constexpr uint32_t kEntryCapacity = 4096;
inline constexpr uint32_t kWordCapacity = 1u << 15;
inline constexpr uint32_t kCodeRangeCapacity = 16384;
inline constexpr int32_t kRanksPerGroup = 64;  // of larger irregular groups the log names the first 64 ranks
inline constexpr int32_t kLargestGroup = 1 << 16;  // ranks of a regular group that the log names
inline constexpr int32_t kMostSharingRanks = 64;  // of a group that shares memory
inline constexpr uint32_t kShapeCapacity = 8;
inline constexpr uint32_t kSiteCapacity = 2048;
inline constexpr uint32_t kMessageCapacity = 4096;

template <typename T>
using Atomic = std::atomic<T>;
static_assert(Atomic<uint64_t>::is_always_lock_free && Atomic<int64_t>::is_always_lock_free);

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes, group_bytes, signature_bytes, entry_bytes, code_range_bytes;
  uint32_t group_capacity, signature_capacity, entry_capacity, word_capacity, code_range_capacity;
  int32_t rank, world_size;
  Atomic<uint32_t> compares;  // 1: ranks compare their calls
  Atomic<uint32_t> calls_are_read;  // 1: whoever compares them with those of other machines tells of what differs
  int64_t pid;
  uint64_t process_start;  // field 22 of /proc/PID/stat: a later process with the same pid has another
  int64_t realtime_minus_monotonic;  // ns, at start
  Atomic<uint64_t> next_entry;  // entries ever begun; entry i lives in slot i % entry_capacity
  Atomic<uint64_t> next_word;
  Atomic<int64_t> cell, step;  // current ones
  Atomic<uint32_t> group_count, code_range_count;
  Atomic<uint32_t> aborted;  // 1: dist::abort was called, why is in `reason`; 0 after a regroup
  Atomic<uint32_t> arrivals;  // futex: counts peers that came to a collective that this rank has seen a mismatch in
  char reason[256];
};

// closed: its rank is done with it. unused: nobody holds it; the other fields stay until the slot is taken.
enum class GroupState : uint32_t { unused, live, broken, closed };
enum class BreakCause : uint32_t { none, aborted, mismatch, failed, excluded };

/// Values of Group::shared_wait. While the rank sleeps it is shared_wait() of a peer and of the collective that the peer
/// has to come to, which may be an earlier one than the rank is in.
inline constexpr int64_t kNoSharedMemory = -2, kNoSharedWait = -1;
constexpr int64_t shared_wait(int64_t seq, int32_t group_rank) { return seq * kMostSharingRanks + group_rank; }

struct Group {
  char name[64];
  Atomic<GroupState> state;
  Atomic<BreakCause> cause;
  int32_t size, group_rank;  // group_rank is -1 for a group that this rank is not in
  // Of a regular group, whose rank i is first + step * i in the default group. All groups of a mesh are. step 0: `ranks`.
  int32_t first, step;
  int64_t generation;
  // A number that these connections of the group have on all its ranks, and no others; 0: it is not known. Entries of
  // the group from number `first_entry` on are calls over them.
  Atomic<uint64_t> incarnation, first_entry;
  Atomic<int64_t> last_entered;  // sequence number
  Atomic<int64_t> last_before;  // the sequence number of the last call before this generation
  Atomic<int64_t> shared_wait;  // for whom this rank sleeps in a collective, where the ranks share memory
  // Number at which this rank saw a mismatch, in generation mismatch_generation; 0: none; negative: -1 - the entry of a
  // send or recv.
  Atomic<int64_t> mismatch_seq;
  Atomic<int64_t> mismatch_generation;
  // Point to point, by group rank of the peer. Messages with the other peers of a larger group are not counted.
  Atomic<uint32_t> sent[kRanksPerGroup], received[kRanksPerGroup];
  Atomic<uint32_t> received_from_any;  // recv without a source
  int32_t ranks[kRanksPerGroup];  // the first ones, of the default group; of an irregular group

  void set_ranks(std::span<const int> all) {
    size = static_cast<int32_t>(all.size());
    first = all.empty() ? 0 : all[0];
    step = all.size() < 2 ? 1 : all[1] - all[0];
    for (int32_t i = 0; i < size && step != 0; ++i)
      if (all[static_cast<size_t>(i)] != first + int64_t{step} * i) step = 0;
    std::copy_n(all.begin(), std::min(size, kRanksPerGroup), ranks);
  }
  /// How many ranks, from group rank 0, the log names. A damaged log names no more than its limits.
  int32_t named() const { return std::clamp(size, 0, step == 0 ? kRanksPerGroup : kLargestGroup); }
  /// Returns the rank of the default group that has this group rank, which is below named().
  int32_t rank_at(int32_t group_rank) const {
    const int32_t by = step;
    return by == 0 ? ranks[std::clamp(group_rank, 0, kRanksPerGroup - 1)]
                   : static_cast<int32_t>(first + int64_t{by} * group_rank);
  }
  /// Returns the ranks that the log names, by group rank.
  std::vector<int> named_ranks() const {
    const int32_t by = step, from = first;  // of another process, which may write them
    const int32_t count = std::clamp(size, 0, by == 0 ? kRanksPerGroup : kLargestGroup);
    std::vector<int> result;
    for (int32_t i = 0; i < count; ++i) result.push_back(by == 0 ? ranks[i] : static_cast<int>(from + int64_t{by} * i));
    return result;
  }
  /// Forgets what was sent and received.
  void clear_counts() {
    for (auto& each : sent) each = 0;
    for (auto& each : received) each = 0;
    received_from_any = 0;
  }

  /// Whether its rank has not closed it.
  bool open() const {
    const GroupState now = state.load();
    return now == GroupState::live || now == GroupState::broken;
  }
};

/// The ranks of one machine compare signatures before data moves. Slot seq % signature_capacity of the group has it.
struct Signature {
  Atomic<int64_t> seq;
  Atomic<uint64_t> signature;
  Atomic<uint64_t> entry;  // number of the entry
  Atomic<uint32_t> mismatch;  // 1: this rank saw a mismatch here and did not enter
  uint32_t reserved;
};

// kAsync: the call returned at once. kThroughC10d: the call came from c10d itself (a Reducer) or a user of c10d, not
// through dist::, or torch.distributed in Python. kOnDevice: its tensors are on a device, and it is done when the
// device is done with it (DeviceTimes). kNamedSite: call_site is no address, but the number of a Site, from 1.
enum EntryFlags : uint8_t { kPointToPoint = 1, kAsync = 2, kThroughC10d = 4, kOnDevice = 8, kNamedSite = 16 };
enum class EntryState : uint8_t { entered = 0, done = 1, failed = 2 };

struct Entry {
  Atomic<uint64_t> sequence;  // see above
  Atomic<uint64_t> state;  // entry number × 4 + EntryState
  Atomic<int64_t> done_ns;  // CLOCK_MONOTONIC
  int64_t entered_ns;
  int64_t seq;
  uint64_t call_site;
  int64_t cell, step;
  int64_t bytes;
  uint64_t signature;
  uint32_t group;
  int32_t root;  // rank of the default group, -1: none; for send and recv the peer (-1: any)
  int32_t tensor_count;
  uint8_t op, dtype, reduce_op,
      dimensions;  // dtype: value of c10::ScalarType, 255: none; reduce_op: of c10d::ReduceOp, 255
  uint8_t flags, reserved[3];
  int32_t tag;  // of send and recv
  int64_t
      tag_seq;  // of this send or recv among those of its group with that peer and tag, or on the device; 0: not counted
  uint64_t word_begin;  // all_to_all: the split sizes, inputs then outputs, in the ring of words
  uint32_t word_count;
  int32_t thread;  // the kernel's number of the thread that called
  int64_t shape[kShapeCapacity];  // of the first tensor
  char group_name[64];
};

struct CodeRange {
  uint64_t begin, size;
  int64_t cell;
};

/// Says how far an entry with kOnDevice has come: the CLOCK_MONOTONIC times of the first look that saw each stage
/// (DeviceProgress), 0 before. Has the slot of the entry; entries without the flag do not touch it.
struct DeviceTimes {
  Atomic<uint64_t> owner;  // number of the entry + 1
  Atomic<int64_t> looked_ns;  // the newest look
  Atomic<int64_t> reached_ns;  // the caller's stream had come to it
  Atomic<int64_t> started_ns;  // so had the collectives before it that run in order with it
};

/// A line of a program that has no addresses (Python). It is written once, before the first entry that refers to it.
/// Longer paths lose their beginning, longer names their end.
struct Site {
  char file[184], function[64];
  int64_t line;
};

/// A send or recv, in the slot of its key, where the rank at the other side finds it. A later one may take the slot.
struct Message {
  Atomic<uint64_t> key;
  Atomic<uint64_t> entry;
};

static_assert(sizeof(Header) <= 4096);
inline constexpr size_t kHeaderBytes = 4096;
inline constexpr size_t kGroupsAt = kHeaderBytes;
inline constexpr size_t kSignaturesAt = kGroupsAt + sizeof(Group) * kGroupCapacity;
inline constexpr size_t kEntriesAt = kSignaturesAt + sizeof(Signature) * kSignatureCapacity * kGroupCapacity;
inline constexpr size_t kWordsAt = kEntriesAt + sizeof(Entry) * kEntryCapacity;
inline constexpr size_t kCodeRangesAt = kWordsAt + sizeof(int64_t) * kWordCapacity;
inline constexpr size_t kDeviceTimesAt = kCodeRangesAt + sizeof(CodeRange) * kCodeRangeCapacity;
inline constexpr size_t kSitesAt = kDeviceTimesAt + sizeof(DeviceTimes) * kEntryCapacity;
inline constexpr size_t kMessagesAt = kSitesAt + sizeof(Site) * kSiteCapacity;
inline constexpr size_t kFileBytes = kMessagesAt + sizeof(Message) * kMessageCapacity;

}  // namespace lockstep::dist::log_layout
