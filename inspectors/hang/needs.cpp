#include "inspectors/hang/needs.h"

#include <algorithm>

namespace lockstep::inspect {

using dist::CollectiveRecord;
using dist::LoggedGroup;

const LoggedGroup* group_of(const RankPicture& rank, const std::string& name) {
  for (const LoggedGroup& group : rank.groups)
    if (group.name == name) return &group;
  return nullptr;
}

Needs needs_of(const RankPicture& rank, const RankWait& wait) {
  const CollectiveRecord& call = wait.call;
  if (!rank.has_log || !wait.missing.empty()) return {wait.missing};  // the rank reported them itself
  const LoggedGroup* group = group_of(rank, call.group);
  if (!group) return {};
  if (!wait.broken) return dist::needs_of(call, *group, rank.rank);
  RankSet others(group->ranks);  // any of them can break the collective
  others.erase(rank.rank);
  return {others};
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
  const Needs needs = needs_of(rank, wait);
  for (const int each : needs.ranks)
    if (!has_entered(rank, wait, picture.rank(each))) result.insert(each);
  if (needs.earlier.rank < 0) return result;
  RankWait earlier = wait;
  earlier.call.seq = needs.earlier.seq;
  if (!has_entered(rank, earlier, picture.rank(needs.earlier.rank))) result.insert(needs.earlier.rank);
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
