#include "collectives/log/needed_ranks.h"

#include <algorithm>
#include <bit>

namespace lockstep::dist {

namespace {

/// Returns the place from which a rank receives in Gloo's tree of a broadcast; the root has place 0.
int64_t parent_in_tree(int64_t place) {
  return place - static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(place)));
}

/// A rank of a broadcast of Gloo waits for the data, which comes through its ancestors, and for its children, because a
/// send of Gloo ends only after the receiver has asked for it.
bool broadcast_needs(int64_t self, int64_t other) {
  for (int64_t place = self; place > 0;)
    if ((place = parent_in_tree(place)) == other) return true;
  return other > 0 && parent_in_tree(other) == self;
}

/// In a reduce of Gloo each chunk of the tensor goes round the ring, from rank to the rank before it. Of small tensors
/// only the first `chunks` ranks have a chunk: the chunk of rank c begins at rank c - 1. `distance`: of the other rank,
/// in the direction from which data comes.
bool reduce_needs(int64_t self, int64_t distance, int64_t size, int64_t chunks) {
  return distance == size - 1 || self + distance <= size + chunks - 2;
}

/// Returns how many chunks of it have elements, at least: those of 16 bytes have the fewest (gloo/reduce.cc).
int64_t chunks_of_reduce(int64_t bytes, int64_t size) {
  constexpr int64_t kLongestSegment = 1 << 20, kLongestElement = 16;
  const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  const int64_t segment = kLongestElement * parts(std::min(parts(bytes, 2 * size), kLongestSegment), kLongestElement);
  return parts(bytes, segment * parts(std::max(parts(bytes, segment), 2 * size), size));
}

/// Returns the ranks without which `self` can't leave a collective with a root over Gloo. Both are places in `ranks`.
RankSet needs_with_root(const CollectiveRecord& call, const std::vector<int>& ranks, int64_t self, int64_t root) {
  const auto size = static_cast<int64_t>(ranks.size());
  const auto from = [size](int64_t first, int64_t place) { return (place - first + size) % size; };
  RankSet needed;
  for (int64_t other = 0; other < size; ++other) {
    bool needs = self == root || other == root;  // scatter, gather, monitored_barrier
    if (call.op.starts_with("broadcast"))
      needs = broadcast_needs(from(root, self), from(root, other));
    else if (call.op == "reduce")
      needs = self == root || reduce_needs(self, from(self, other), size, chunks_of_reduce(call.bytes, size));
    if (needs && other != self) needed.insert(ranks[static_cast<size_t>(other)]);
  }
  return needed;
}

/// Whether the ranks of a group that shares memory do this through it, of the collectives with a root.
bool is_in_memory(const CollectiveRecord& call) { return call.op.starts_with("broadcast") || call.op == "gather"; }

/// Does the same for a collective with a root in shared memory. The collectives of a rank there end one after the other,
/// so it needs whom it sleeps for in this one or an earlier one.
Needs needs_in_memory(const CollectiveRecord& call, const LoggedGroup& group, int rank, const RankSet& others) {
  Needs needs;
  if (call.op == "gather" && rank == call.root) needs.ranks = others;
  if (call.op != "gather" && rank != call.root) needs.ranks = {call.root};
  if (group.sleeps_in <= call.seq) needs.earlier = {.rank = group.sleeps_for, .seq = group.sleeps_in};
  return needs;
}

}  // namespace

Needs needs_of(const CollectiveRecord& call, const LoggedGroup& group, int rank) {
  RankSet others(group.ranks);
  others.erase(rank);
  if (call.point_to_point && call.root < 0)  // a rank that is not named may send the message
    return group.unnamed == 0 ? Needs{others, true} : Needs{{}, true};
  if (call.point_to_point) return {RankSet{call.root}};
  // Tensors without elements are not exchanged, so no rank waits for another.
  if (call.bytes == 0 && call.tensor_count > 0) return {};
  if (call.op == "gather_object") return {others};  // it begins with an all_gather of sizes
  if (call.op == "new_group") {  // waits for the members; its shape has the first eight of them
    RankSet members;
    for (const int64_t each : call.shape)
      if (each != rank) members.insert(static_cast<int>(each));
    return {members};
  }
  const int first = group.ranks.empty() ? -1 : group.ranks.front();
  const int root = call.op == "monitored_barrier" ? first : call.root;
  if (root < 0) return {others};
  if (group.shares_memory && is_in_memory(call)) return needs_in_memory(call, group, rank, others);
  const auto place_of = [&](int each) { return std::ranges::find(group.ranks, each) - group.ranks.begin(); };
  const auto size = std::ssize(group.ranks), self = place_of(rank), root_place = place_of(root);
  const bool all_known = group.unnamed == 0 && self < size && root_place < size;
  if (all_known && !call.on_device) return {needs_with_root(call, group.ranks, self, root_place)};
  // On a device data goes one way, and who sends need not wait until it is received.
  const bool from_root = call.op.starts_with("broadcast") || call.op.starts_with("scatter");
  if (rank == root) return from_root ? Needs{} : Needs{others};
  return from_root || call.op == "monitored_barrier" ? Needs{RankSet{root}} : Needs{};
}

}  // namespace lockstep::dist
