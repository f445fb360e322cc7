#include "inspectors/remains/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/remains/call_words.h"
#include "inspectors/remains/rank_errors.h"

namespace lockstep::inspect::judging {

Case::Case(const Remains& what) : remains(what) {
  for (const Evidence& each : remains.evidence)
    if (each.rank && each.source == EvidenceSource::collective_log)
      for (const EvidenceGroup& group : each.groups) logged[group.name].insert(*each.rank);
  for (const Evidence& each : remains.evidence) {
    if (each.source != EvidenceSource::flight_recorder && each.source != EvidenceSource::collective_log) continue;
    // The recorder counts what is below the backend `lockstep`. A rank whose log could not be made has nothing else.
    const auto is_counted_otherwise = [&](const EvidenceGroup& group) {
      const auto others = logged.find(group.name);
      return each.rank && others != logged.end() && !others->second.contains(*each.rank);
    };
    if (each.source == EvidenceSource::flight_recorder && std::ranges::any_of(each.groups, is_counted_otherwise))
      continue;
    dumps.push_back(&each);
    if (each.rank) dumped.insert(*each.rank);
    for (const EvidenceGroup& group : each.groups)
      for (const int rank : group.ranks) world.insert(rank);
  }
  for (const int rank : dumped) world.insert(rank);
  for (const RankError& each : remains.errors) {
    if (each.rank < 0) continue;
    failed.insert(each.rank);
    if (is_consequence(each) || is_mismatch(each) || is_size_mismatch(each)) continue;
    outside.insert(each.rank);
    by_themselves.insert(each.rank);
  }
  for (const RankDoing& each : remains.doing) {
    world.insert(each.rank);
    if (each.ended) ended.insert(each.rank);
    if (each.ended && each.kind == FindingKind::died) killed.insert(each.rank);
    if (each.ended && each.kind == FindingKind::died && !each.at_fault) taken_along.insert(each.rank);
    if (each.ended && each.kind == FindingKind::finished) outside.insert(each.rank);
    if (each.at_fault) failed.insert(each.rank);
    // NCCL's watchdog aborts its process because another rank is silent, and Gloo because one sends other sizes.
    if (each.at_fault && each.words.find("SIGABRT") == std::string::npos) by_themselves.insert(each.rank);
  }
}

bool Case::is_logged(const std::string& group, const RankSet& ranks) const {
  const auto found = logged.find(group);
  return found != logged.end() && ranks - found->second == RankSet();
}

bool Case::has_members(const std::string& name) const {
  return std::ranges::any_of(dumps, [&](const Evidence* dump) {
    const EvidenceGroup* group = dump->group(name);
    return group && !group->ranks.empty();
  });
}

RankSet Case::ended_after(const std::string& group, int64_t seq) const {
  RankSet ranks;
  for (const RankDoing& each : remains.doing) {
    const auto last = each.calls.find(group);
    if (each.ended && last != each.calls.end() && last->second >= seq) ranks.insert(each.rank);
  }
  return ranks;
}

RankSet Case::ended_without_a_word() const {
  RankSet ranks;
  for (const RankDoing& each : remains.doing)
    if (each.ended && each.kind == FindingKind::died && each.calls.empty()) ranks.insert(each.rank);
  return ranks;
}

RankSet Case::waits_by_stacks(const EvidenceCall& call) const {
  const std::string called_at = place(call.frames);
  RankSet ranks;
  for (const RankDoing& each : remains.doing) {
    if (each.op.empty() || each.ended) continue;
    const auto stack = std::ranges::find_if(remains.stacks,
                                            [&](const RankStack& one) { return one.rank == each.rank && one.is_main; });
    const std::string is_at = stack == remains.stacks.end() ? "" : place(stack->frames);
    if (called_at.empty() || is_at.empty() ? each.op == call.op : is_at == called_at) ranks.insert(each.rank);
  }
  return ranks;
}

std::string Case::last_call(int rank) const {
  for (const Evidence* dump : dumps)
    if (dump->rank == rank && !dump->calls.empty())
      return fmt::format("{}{}", call_words(dump->calls.back()), in_brackets(place(dump->calls.back().frames)));
  return {};
}

std::pair<std::string, FindingKind> Case::what_it_does(int rank, const std::string& group) const {
  for (const RankError& each : remains.errors)
    if (each.rank == rank)
      return {fmt::format("raised {}{}", each.type, in_brackets(place(each.frames))), FindingKind::threw};
  const auto doing = std::ranges::find(remains.doing, rank, &RankDoing::rank);
  const bool watched = doing != remains.doing.end();
  if (watched && doing->ended) return {doing->words, doing->kind};
  std::string words, called_at;
  FindingKind kind = FindingKind::unknown;
  const EvidenceCall* last = nullptr;
  for (const Evidence* dump : dumps) {
    if (dump->rank != rank) continue;
    for (const EvidenceCall& call : dump->calls) {
      last = &call;
      if (call.state == EvidenceState::completed || (!group.empty() && call.group == group)) continue;
      words = fmt::format("is in {}{}", call_words(call), in_brackets(place(call.frames)));
      kind = FindingKind::other_collective;
      called_at = place(call.frames);
      break;
    }
  }
  for (const RankStack& each : remains.stacks) {
    if (each.rank != rank || !each.is_main || each.frames.empty()) continue;
    if (watched && kind == FindingKind::unknown) {
      words = fmt::format("{}{}", doing->words, in_brackets(place(each.frames)));
      kind = doing->kind;
    } else if (called_at.empty() || place(each.frames) != called_at) {
      words += fmt::format("{}its main thread is at {}", words.empty() ? "" : ", and ", place(each.frames));
    }
    break;
  }
  if (words.empty() && watched) words = doing->words, kind = doing->kind;
  if (words.empty() && last)
    words = fmt::format("called {} last{}{}", call_words(*last), in_brackets(place(last->frames)),
                        last->state == EvidenceState::completed ? ", which has ended" : "");
  return {words, kind};
}

}  // namespace lockstep::inspect::judging
