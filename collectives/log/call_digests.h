// Digests of what a rank has called, for ranks of other machines, which can't read its log: few enough bytes to be sent
// every other second. Ranks that have called the same have the same digests.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "protocol/json_fields.h"

namespace lockstep::dist {

/// Describes what one side says of data that goes from a rank to another one of a group.
struct Transfer {
  /// A message, whose number counts those of its tag, or all; or a part of an all_to_all.
  enum Kind { by_tag, by_order, part };
  int kind = by_tag;
  int from = 0, to = 0;  // of the default group
  int tag = 0;
  int64_t number = 0;  // of a part: that of the all_to_all
  int64_t amount = 0;  // bytes of a message, or elements; -1: objects, whose sizes are sent
  int dtype = 0;  // of a message
  uint64_t entry = 0;  // in the log of this side

  bool agrees_with(const Transfer& other) const { return amount == other.amount && dtype == other.dtype; }
};

LOCKSTEP_JSON(Transfer, kind, from, to, tag, number, amount, dtype, entry)

/// Holds digests of the newest collectives of one group.
struct CallDigests {
  std::string key;  // the group's name, ranks, generation and incarnation: only digests of the same key are compared
  std::string group;
  int64_t newest = 0;  // its number
  std::vector<uint64_t> calls;  // signatures of the newest calls, the newest first
  std::map<int64_t, uint64_t> blocks;  // k → digest of the calls with the numbers 64 k + 1 to 64 k + 64
  std::vector<Transfer> transfers;  // the newest of this rank, the newest first
};

LOCKSTEP_JSON(CallDigests, key, group, newest, calls, blocks, transfers)

/// Returns the signature of what has to be alike on all ranks, of an entry of the log. 0: the entry is gone, or the rank
/// does not compare its calls.
uint64_t signature_of(const CollectiveLogReader& log, uint64_t entry);

/// Returns those of every group that the rank is in. Nothing where its ranks do not compare calls.
std::vector<CallDigests> call_digests(const CollectiveLogReader& log);

/// The calls `first` to `last` of a group, not all of which are alike on all ranks.
struct DifferingCalls {
  std::string key, group;  // as CallDigests has them
  int64_t first = 0, last = 0;

  /// Returns "#65 to #128 of group default are not the same collectives on all ranks".
  std::string str() const;
};

/// Returns the calls that differ between the ranks of `digests`, in the order of their last numbers. Nothing where those
/// that can be compared are alike: of ranks that are more than 64 calls apart only whole blocks are.
std::vector<DifferingCalls> differing_calls(const std::map<int, std::vector<CallDigests>>& digests);

/// Names what a rank sends, and what the other one expects in its place.
struct DifferingTransfer {
  std::string key, group;  // as CallDigests has them
  Transfer sent, expected;

  /// Returns "rank 0 sends 16 bytes of float32 to rank 2 (train.py:43), which …"; the places may be empty.
  std::string str(const std::string& place_of_sender, const std::string& place_of_receiver) const;
};

/// Returns all such data, of the newest that both ranks know, in the order of their numbers.
std::vector<DifferingTransfer> differing_transfers(const std::map<int, std::vector<CallDigests>>& digests);

}  // namespace lockstep::dist
