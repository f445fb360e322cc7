#include "inspectors/hang/needs.h"

#include <algorithm>
#include <bit>

namespace lockstep::inspect {

using dist::CollectiveRecord;
using dist::LoggedGroup;

const LoggedGroup* group_of(const RankPicture& rank, const std::string& name) {
  for (const LoggedGroup& group : rank.groups)
    if (group.name == name) return &group;
  return nullptr;
}

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

}  // namespace

Needs needs_of(const RankPicture& rank, const RankWait& wait) {
  const CollectiveRecord& call = wait.call;
  if (!rank.has_log || !wait.missing.empty()) return {wait.missing};  // the rank reported them itself
  const LoggedGroup* group = group_of(rank, call.group);
  if (!group) return {};
  RankSet others;
  for (const int each : group->ranks)
    if (each != rank.rank) others.insert(each);
  if (wait.broken) return {others};  // any of them can break the collective
  if (call.point_to_point && call.root < 0)  // a rank that is not named may send the message
    return group->unnamed == 0 ? Needs{others, true} : Needs{{}, true};
  if (call.point_to_point) return {RankSet{call.root}};
  // Gloo does nothing for tensors without elements, so no rank waits for another.
  if (call.bytes == 0 && call.tensor_count > 0) return {};
  if (call.op == "gather_object") return {others};  // it begins with an all_gather of sizes
  if (call.op == "new_group") {  // waits for the members; its shape has the first eight of them
    RankSet members;
    for (const int64_t each : call.shape)
      if (each != rank.rank) members.insert(static_cast<int>(each));
    return {members};
  }
  const int first = group->ranks.empty() ? -1 : group->ranks.front();
  const int root = call.op == "monitored_barrier" ? first : call.root;
  if (root < 0) return {others};
  const auto place_of = [&](int each) { return std::ranges::find(group->ranks, each) - group->ranks.begin(); };
  const auto size = std::ssize(group->ranks), self = place_of(rank.rank), root_place = place_of(root);
  const bool all_known = group->unnamed == 0 && self < size && root_place < size;
  if (all_known && !call.on_device) return {needs_with_root(call, group->ranks, self, root_place)};
  // On a device data goes one way, and who sends need not wait until it is received.
  const bool from_root = call.op.starts_with("broadcast") || call.op.starts_with("scatter");
  if (rank.rank == root) return from_root ? Needs{} : Needs{others};
  return from_root || call.op == "monitored_barrier" ? Needs{RankSet{root}} : Needs{};
}

bool has_left_group(const RankPicture& peer, const CollectiveRecord& call) {
  if (!peer.has_log) return false;
  const LoggedGroup* group = group_of(peer, call.group);
  return !group || !group->member;
}

namespace {
/// Whether `peer` is the reason that the call failed on other ranks: it died, closed the group, or failed in it.
bool broke(const RankPicture& peer, const CollectiveRecord& call) {
  if (peer.place == RankPicture::Place::dead || has_left_group(peer, call)) return true;
  if (!peer.gone() || peer.consequence) return false;
  return std::any_of(peer.recent.begin(), peer.recent.end(), [&](const CollectiveRecord& record) {
    return record.group == call.group && record.cell == call.cell && record.state == dist::CollectiveState::failed;
  });
}

/// Whether `peer` has called, or may have called, the recv of a send or the send of a recv.
bool has_message(const RankPicture& rank, const CollectiveRecord& call, const RankPicture& peer,
                 const LoggedGroup& group) {
  const bool sends = dist::is_send(call);
  if (sends && group.received_from_any > 0) return true;  // a recv from any rank may take the message
  if (!group.counts_messages_with(rank.rank)) return true;
  const auto& counts = sends ? group.received : group.sent;
  const auto count = counts.find(rank.rank);
  if (count == counts.end()) return false;
  if (call.tag_seq == 0) return count->second >= call.seq;
  // Tags decide: the other side of a waiting message is in the newest records or in flight, or it has not begun.
  const auto is_other_side = [&](const CollectiveRecord& each) {
    return each.group == call.group && each.root == rank.rank && each.tag == call.tag &&
           (sends ? dist::is_recv(each) : dist::is_send(each)) && each.tag_seq >= call.tag_seq;
  };
  return std::any_of(peer.recent.begin(), peer.recent.end(), is_other_side) ||
         std::any_of(peer.waits.begin(), peer.waits.end(),
                     [&](const RankWait& wait) { return is_other_side(wait.call); });
}
}  // namespace

bool is_held_by_earlier(const RankPicture& rank, const RankWait& wait) {
  return wait.call.on_device && wait.call.stage() == dist::CollectiveStage::waiting_for_stream &&
         std::ranges::any_of(rank.waits, [&](const RankWait& each) {
           return each.call.on_device && each.call.entry < wait.call.entry;
         });
}

namespace {
bool waits_in(const RankPicture& rank, const CollectiveRecord& call) {
  return !call.point_to_point && std::ranges::any_of(rank.waits, [&](const RankWait& each) {
    return !each.broken && !each.call.point_to_point && each.call.group == call.group && each.call.seq == call.seq &&
           !is_held_by_earlier(rank, each);
  });
}
}  // namespace

bool has_entered(const RankPicture& rank, const RankWait& wait, const RankPicture* peer) {
  // What the rank has reported itself may be out of date: others have come since.
  if (!rank.has_log) return peer && waits_in(*peer, wait.call);
  if (!peer) return true;
  if (wait.broken && (peer->gone() || broke(*peer, wait.call))) return !broke(*peer, wait.call);
  if (!peer->has_log) return true;
  const CollectiveRecord& call = wait.call;
  const LoggedGroup* group = group_of(*peer, call.group);
  if (!group || !group->member) return false;  // the peer has destroyed it
  if (!call.point_to_point) {
    if (group->entered < call.seq) return false;
    return peer->gone() || std::ranges::none_of(peer->waits, [&](const RankWait& each) {
             return each.call.group == call.group && each.call.seq == call.seq && !each.call.point_to_point &&
                    is_held_by_earlier(*peer, each);
           });
  }
  return has_message(rank, call, *peer, *group);
}

RankSet missing_for(const HangPicture& picture, const RankPicture& rank, const RankWait& wait) {
  RankSet result;
  for (const int each : needs_of(rank, wait).ranks)
    if (!has_entered(rank, wait, picture.rank(each))) result.insert(each);
  return result;
}

RankSet lost_of(const HangPicture& picture, const RankWait& wait, const RankSet& missing) {
  RankSet result;
  for (const int each : missing) {
    const RankPicture* peer = picture.rank(each);
    if (peer && (peer->gone() || has_left_group(*peer, wait.call))) result.insert(each);
  }
  return result;
}

namespace {
bool may_end(const HangPicture& picture, const RankPicture& rank, const RankWait& wait, const RankSet& stuck) {
  if (is_held_by_earlier(rank, wait)) return false;  // that one decides
  const Needs needs = needs_of(rank, wait);
  const RankSet missing = missing_for(picture, rank, wait);
  const RankSet never = lost_of(picture, wait, missing) | (missing & stuck);
  return needs.any ? never != needs.ranks || needs.ranks.empty() : never.empty();
}
}  // namespace

RankSet stuck_ranks(const HangPicture& picture, RankSet candidates) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const int number : RankSet(candidates)) {
      const RankPicture& rank = *picture.rank(number);
      if (std::any_of(rank.waits.begin(), rank.waits.end(),
                      [&](const RankWait& wait) { return may_end(picture, rank, wait, candidates); })) {
        candidates = candidates - RankSet{number};
        changed = true;
      }
    }
  }
  return candidates;
}

RankSet waited_for(const HangPicture& picture, int rank) {
  const RankPicture* found = picture.rank(rank);
  RankSet result;
  if (!found || found->gone()) return result;
  for (const RankWait& wait : found->waits) result = result | missing_for(picture, *found, wait);
  return result;
}

}  // namespace lockstep::inspect
