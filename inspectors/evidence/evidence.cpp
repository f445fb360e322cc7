#include "inspectors/evidence/evidence.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace lockstep::inspect {

const char* source_words(EvidenceSource source) {
  switch (source) {
    case EvidenceSource::flight_recorder:
      return "the Flight Recorder";
    case EvidenceSource::ras:
      return "NCCL's RAS";
    case EvidenceSource::async_error:
      return "NCCL's asynchronous errors";
    case EvidenceSource::collective_log:
      return "the collective log";
  }
  return "";
}

const char* state_words(EvidenceState state) {
  switch (state) {
    case EvidenceState::scheduled:
      return "scheduled";
    case EvidenceState::started:
      return "started";
    case EvidenceState::completed:
      return "completed";
  }
  return "";
}

const EvidenceMember* EvidenceGroup::member(int group_rank) const {
  for (const EvidenceMember& each : members)
    if (each.group_rank == group_rank) return &each;
  return nullptr;
}

const EvidenceGroup* Evidence::group(std::string_view name) const {
  for (const EvidenceGroup& each : groups)
    if (each.name == name) return &each;
  return nullptr;
}

RankSet EvidenceRow::in_state(EvidenceState state) const {
  RankSet result;
  for (const auto& [rank, call] : calls)
    if (call->state == state) result.insert(rank);
  return result;
}

std::vector<EvidenceRow> side_by_side(const std::vector<const Evidence*>& dumps) {
  struct Seen {
    int64_t first = 0, last = 0;  // numbers in a rank's dump
  };
  using Key = std::pair<std::string, int64_t>;
  std::map<Key, EvidenceRow> rows;
  std::map<std::string, std::map<int, Seen>> seen;
  std::map<std::string, RankSet> members;
  RankSet dumped;
  for (const Evidence* dump : dumps) {
    for (const EvidenceGroup& group : dump->groups)
      for (const int rank : group.ranks) members[group.name].insert(rank);
    if (!dump->rank) continue;
    dumped.insert(*dump->rank);
    for (const EvidenceCall& call : dump->calls) {
      if (call.point_to_point) continue;
      members[call.group].insert(*dump->rank);
      const auto [at, fresh] = seen[call.group].try_emplace(*dump->rank, Seen{call.seq, call.seq});
      at->second.first = std::min(at->second.first, call.seq);
      at->second.last = std::max(at->second.last, call.seq);
      EvidenceRow& row = rows[{call.group, call.seq}];
      row.group = call.group;
      row.seq = call.seq;
      row.calls.emplace(*dump->rank, &call);  // of a coalesced group the first call
    }
  }
  std::vector<EvidenceRow> result;
  result.reserve(rows.size());
  for (auto& [key, row] : rows) {
    row.op = row.calls.begin()->second->op;
    for (const int rank : members[row.group]) {
      if (row.calls.contains(rank)) continue;
      const auto& of_group = seen[row.group];
      const auto own = of_group.find(rank);
      // The records are a ring: a rank's older ones are gone. A rank without one of this group has called nothing.
      const bool behind = own == of_group.end() ? dumped.contains(rank) : own->second.last < row.seq;
      (behind ? row.missing : row.unknown).insert(rank);
    }
    result.push_back(std::move(row));
  }
  return result;
}

void drop_destroyed_groups(Evidence& evidence) {
  std::set<std::string> begun,
      ended;  // backwards: the first collective of the newest group was seen, one of an earlier
  std::vector<bool> dropped(evidence.calls.size());
  for (size_t i = evidence.calls.size(); i-- > 0;) {
    const EvidenceCall& call = evidence.calls[i];
    if (!call.point_to_point) {
      if (begun.contains(call.group))
        ended.insert(call.group);
      else if (call.seq <= 1)
        begun.insert(call.group);
    }
    dropped[i] = ended.contains(call.group);
  }
  size_t at = 0;
  std::erase_if(evidence.calls, [&](const EvidenceCall&) { return dropped[at++]; });
}

void name_ranks(Evidence& evidence, const std::map<int64_t, int>& ranks) {
  for (EvidenceGroup& group : evidence.groups) {
    for (EvidenceMember& member : group.members)
      if (const auto found = ranks.find(member.pid); found != ranks.end() && member.pid > 0)
        member.rank = found->second;
    if (!group.ranks.empty() || group.size <= 0 || static_cast<size_t>(group.size) != group.members.size()) continue;
    if (std::ranges::any_of(group.members, [](const auto& each) { return each.rank < 0; })) continue;
    std::vector<std::pair<int, int>> by_group_rank;
    for (const EvidenceMember& member : group.members) by_group_rank.emplace_back(member.group_rank, member.rank);
    std::ranges::sort(by_group_rank);
    for (const auto& [group_rank, rank] : by_group_rank) group.ranks.push_back(rank);
  }
}

}  // namespace lockstep::inspect
