#include "inspectors/hang/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "inspectors/evidence/async_errors.h"
#include "inspectors/evidence/ras.h"
#include "inspectors/findings/about.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {
namespace {

using dist::CollectiveRecord;
using dist::LoggedGroup;

/// The clocks differ: c10d takes its time within the call, after the log has taken its own.
constexpr int64_t kClockSlack_ns = 1'000'000;

/// Returns the group of a call as the logs have it; null if no log does.
const LoggedGroup* logged_group(const HangPicture& picture, const std::string& name) {
  for (const RankPicture& rank : picture.ranks)
    if (const LoggedGroup* group = group_of(rank, name)) return group;
  return nullptr;
}

/// Whether a group of a source is the logs' `name`: by its name or description, or by its ranks if no other group has
/// them.
bool is_group(const HangPicture& picture, const std::string& name, const std::string& source_name,
              const std::string& description, const std::vector<int>& ranks) {
  if (source_name == name || description == name || (name == "default" && description == "default_pg")) return true;
  const LoggedGroup* group = logged_group(picture, name);
  if (!group || ranks.empty() || group->unnamed > 0 || ranks != group->ranks) return false;
  std::set<std::string> same;
  for (const RankPicture& rank : picture.ranks)
    for (const LoggedGroup& each : rank.groups)
      if (each.unnamed == 0 && each.ranks == ranks) same.insert(each.name);
  return same.size() == 1;
}

bool is_group(const HangPicture& picture, const std::string& name, const Evidence& dump, const EvidenceCall& call) {
  const EvidenceGroup* group = dump.group(call.group);
  return is_group(picture, name, call.group, call.group_description, group ? group->ranks : std::vector<int>());
}

/// Returns a rank's record of a collective: in flight, or among the newest.
const CollectiveRecord* record_of(const RankPicture& rank, const CollectiveRecord& call) {
  const auto is_it = [&](const CollectiveRecord& each) {
    return each.group == call.group && each.seq == call.seq && !each.point_to_point;
  };
  for (const RankWait& wait : rank.waits)
    if (is_it(wait.call)) return &wait.call;
  for (const CollectiveRecord& each : rank.recent)
    if (is_it(each)) return &each;
  return nullptr;
}

/// Returns when the rank made its next call in the group, on the clock of the log; nothing if it has not.
std::optional<int64_t> next_call_ns(const RankPicture& rank, const CollectiveRecord& record) {
  std::optional<int64_t> next;
  const auto look_at = [&](const CollectiveRecord& each) {
    if (each.group == record.group && !each.point_to_point && each.seq > record.seq)
      next = std::min(next.value_or(each.entered_ns), each.entered_ns);
  };
  for (const RankWait& wait : rank.waits) look_at(wait.call);
  for (const CollectiveRecord& each : rank.recent) look_at(each);
  return next;
}

/// Returns the recorder's entry of a record: of the same group, made while the call was; of several the first of the
/// same operation, else the last. Numbers do not decide, since c10d counts the collectives of a call of objects one by
/// one, and begins again with new connections.
const EvidenceCall* recorded(const HangPicture& picture, const RankPicture& rank, const Evidence& dump,
                             const CollectiveRecord& record) {
  const EvidenceCall* found = nullptr;
  const auto next = next_call_ns(rank, record);
  for (const EvidenceCall& each : dump.calls) {
    if (each.point_to_point || !is_group(picture, record.group, dump, each)) continue;
    if (rank.realtime_minus_monotonic == 0 || each.created_ns == 0) {
      if (each.seq == record.seq) found = &each;
      continue;
    }
    const int64_t created = each.created_ns - rank.realtime_minus_monotonic;
    if (created < record.entered_ns - kClockSlack_ns || (next && created >= *next)) continue;
    found = &each;
    if (each.op == record.op) break;
  }
  return found;
}

/// Returns a recorder's collective that is newer than all that the rank's log has in the group.
const EvidenceCall* unlogged(const HangPicture& picture, const RankPicture& rank, const Evidence& dump,
                             const CollectiveRecord& call) {
  const EvidenceCall* newest = nullptr;
  for (const EvidenceCall& each : dump.calls)
    if (!each.point_to_point && is_group(picture, call.group, dump, each)) newest = &each;
  if (!newest) return nullptr;
  const CollectiveRecord* last = nullptr;
  for (const CollectiveRecord& each : rank.recent)
    if (each.group == call.group && !each.point_to_point && (!last || each.seq > last->seq)) last = &each;
  if (!last) return newest->seq >= call.seq ? newest : nullptr;
  const EvidenceCall* known = recorded(picture, rank, dump, *last);
  return known && known != newest && newest->seq > known->seq ? newest : nullptr;
}

/// Returns "started on ranks 0-1 and scheduled on rank 3".
std::string states_words(const std::map<EvidenceState, RankSet>& by_state, const char* joint) {
  std::string text;
  for (auto each = by_state.rbegin(); each != by_state.rend(); ++each)
    text += fmt::format("{}{} on {}", text.empty() ? "" : joint, state_words(each->first), each->second.words());
  return text;
}

void take_recorder(const HangPicture& picture, const CollectiveRecord& call, std::vector<std::string>& said) {
  std::map<EvidenceState, RankSet> by_state;
  RankSet without;
  bool starts_known = false;
  std::vector<std::string> differences;
  for (const Evidence& dump : picture.evidence) {
    if (dump.source != EvidenceSource::flight_recorder || !dump.rank) continue;
    const RankPicture* rank = picture.rank(*dump.rank);
    if (!rank) continue;
    for (const EvidenceCall& each : dump.calls) starts_known |= each.started_ns > 0;
    const CollectiveRecord* record = record_of(*rank, call);
    if (!record) {
      if (const EvidenceCall* more = unlogged(picture, *rank, dump, call))
        differences.push_back(
            fmt::format("the log of rank {} has no {} #{}, but its Flight Recorder has a later {} ({}), "
                        "as {}",
                        rank->rank, call.op, call.seq, more->op, more->seq, state_words(more->state)));
      continue;
    }
    const EvidenceCall* entry = recorded(picture, *rank, dump, *record);
    if (!entry) {
      without.insert(rank->rank);
      continue;
    }
    by_state[entry->state].insert(rank->rank);
    if (entry->state == EvidenceState::completed && record->state == dist::CollectiveState::entered)
      differences.push_back(
          fmt::format("the log of rank {} has it in flight, its Flight Recorder as completed", rank->rank));
    if (entry->state != EvidenceState::completed && record->state == dist::CollectiveState::done)
      differences.push_back(fmt::format("the log of rank {} has it as done, its Flight Recorder as {}", rank->rank,
                                        state_words(entry->state)));
  }
  if (!by_state.empty()) {
    std::string text = "the Flight Recorder has it as " + states_words(by_state, " and as ");
    if (!starts_known && by_state.contains(EvidenceState::scheduled))
      text += " (it records no starts, which TORCH_NCCL_ENABLE_TIMING=1 switches on)";
    said.push_back(std::move(text));
  }
  if (!without.empty())
    said.push_back(fmt::format("the Flight Recorder of {} has no record of it, though {} entered it", without.words(),
                               without.size() == 1 ? "that rank's log has" : "their logs have"));
  for (std::string& each : differences) said.push_back(std::move(each));
}

/// Returns the kind of operation that NCCL counts; empty for those that it does not count.
std::string counted_op(const std::string& op) {
  for (const char* each : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"})
    if (op.starts_with(each)) return each;
  if (op == "reduce") return op;
  return op == "barrier" ? "all_reduce" : std::string();
}

int rank_of(const EvidenceGroup& group, const EvidenceMember& member) {
  if (member.rank >= 0) return member.rank;
  const auto at = static_cast<size_t>(member.group_rank);
  return member.group_rank >= 0 && at < group.ranks.size() ? group.ranks[at] : -1;
}

/// RAS knows communicators by hashes: only their ranks say which group one is.
bool is_ras_group(const HangPicture& picture, const std::string& name, const EvidenceGroup& group) {
  if (!group.ranks.empty()) return is_group(picture, name, group.name, "", group.ranks);
  // Ranks that are not of this machine have no number here: the group of all ranks is known by its size.
  const LoggedGroup* logged = logged_group(picture, name);
  return name == "default" && logged && group.size == std::ssize(logged->ranks) + logged->unnamed;
}

void take_ras(const HangPicture& picture, const CollectiveRecord& call, std::vector<std::string>& said) {
  for (const Evidence& answer : picture.evidence) {
    if (answer.source != EvidenceSource::ras) continue;
    for (const EvidenceGroup& group : answer.groups) {
      if (!is_ras_group(picture, call.group, group)) continue;
      RankSet dead, silent;
      std::map<std::string, RankSet> errors;
      for (const EvidenceMember& member : group.members) {
        const int rank = rank_of(group, member);
        if (rank < 0) continue;
        if (!member.error.empty()) errors[member.error].insert(rank);
        const RankPicture* seen = picture.rank(rank);
        const bool is_dead = seen && seen->place == RankPicture::Place::dead;
        if (seen && member.dead && !is_dead)
          said.push_back(fmt::format("NCCL's RAS considers rank {} dead, though its process runs", rank));
        else if (member.dead)
          dead.insert(rank);
        else if (member.unresponsive)
          silent.insert(rank);
        if (is_dead && !member.missing)
          said.push_back(fmt::format("NCCL's RAS has an answer of rank {}, though its process has ended", rank));
      }
      if (!dead.empty()) said.push_back(fmt::format("NCCL's RAS considers {} dead", dead.words()));
      if (!silent.empty()) said.push_back(fmt::format("NCCL's RAS gets no answer of {}", silent.words()));
      for (const auto& [error, ranks] : errors)
        said.push_back(fmt::format("NCCL's RAS: {} on {}", error, ranks.words()));
      const std::string op = counted_op(call.op);
      std::map<int64_t, RankSet> counts;
      for (const EvidenceMember& member : group.members) {
        const auto count = member.counts.find(op);
        if (const int rank = rank_of(group, member); rank >= 0 && !member.missing && count != member.counts.end())
          counts[count->second].insert(rank);
      }
      if (op.empty() || counts.empty()) continue;
      if (counts.size() > 1) {
        std::string text;
        for (auto each = counts.rbegin(); each != counts.rend(); ++each)
          text += fmt::format("{}{} {} on {}", text.empty() ? "NCCL's RAS counts " : " and ", each->first,
                              text.empty() ? op + " launched" : "", each->second.words());
        for (size_t at; (at = text.find("  ")) != std::string::npos;) text.erase(at, 1);
        said.push_back(std::move(text));
        continue;
      }
      // Equal counts say that all ranks have launched it.
      RankSet absent;
      for (const int rank : counts.begin()->second)
        if (const RankPicture* seen = picture.rank(rank); seen && seen->has_log && !record_of(*seen, call))
          if (const LoggedGroup* own = group_of(*seen, call.group); own && own->entered < call.seq) absent.insert(rank);
      if (!absent.empty())
        said.push_back(
            fmt::format("NCCL's RAS counts {} {} launched on every rank, though by {} {} {} not entered this one",
                        counts.begin()->first, op, absent.size() == 1 ? "its log" : "their logs", absent.words(),
                        absent.size() == 1 ? "has" : "have"));
    }
  }
}

/// Returns "3.1 s before": when an error was seen, relative to the picture.
std::string ago_words(const HangPicture& picture, const EvidenceError& error) {
  for (const RankPicture& rank : picture.ranks) {
    if (rank.realtime_minus_monotonic == 0 || picture.now_ns == 0) continue;
    const double seconds = static_cast<double>(picture.now_ns + rank.realtime_minus_monotonic - error.time_ns) / 1e9;
    return seconds >= 0 ? fmt::format(" {} ago", seconds_words(seconds)) : std::string();
  }
  return {};
}

}  // namespace

std::vector<std::string> evidence_on(const HangPicture& picture, const CollectiveRecord& call) {
  std::vector<std::string> said;
  if (call.point_to_point) return said;
  take_recorder(picture, call, said);
  take_ras(picture, call, said);
  return said;
}

std::string evidence_words(const HangPicture& picture, const CollectiveRecord& call) {
  std::string text;
  for (const std::string& each : evidence_on(picture, call)) text += "; " + each;
  return text;
}

std::vector<Finding> evidence_findings(const HangPicture& picture) {
  std::vector<Finding> findings;
  const std::vector<EvidenceError> errors = all_errors(picture.evidence);
  if (const EvidenceError* cause = first_cause(errors)) {
    RankSet others;
    for (const EvidenceError& each : errors)
      if (&each != cause && !each.error.empty() && each.rank >= 0 && each.rank != cause->rank) others.insert(each.rank);
    RankSet at_fault;
    if (cause->remote && cause->peer >= 0)
      at_fault.insert(cause->peer);
    else if (cause->rank >= 0)
      at_fault.insert(cause->rank);
    Finding finding = About{.inspector = "hang", .object = {}, .step = {}, .ranks = at_fault}.finding(
        Severity::fault, Verdict::hang, FindingKind::communicator);
    finding.reference_ranks = cause->remote && cause->peer < 0 ? RankSet{} : others - at_fault;
    finding.message = fmt::format("NCCL reports on rank {}: {} in group {}{}", cause->rank, cause->error, cause->group,
                                  ago_words(picture, *cause));
    if (cause->peer >= 0) finding.message += fmt::format(", about rank {}", cause->peer);
    if (cause->remote && cause->peer < 0)
      finding.message += ". Another rank failed or left first, which NCCL does not name";
    if (!others.empty()) finding.message += fmt::format("; errors of {} came after it", others.words());
    findings.push_back(std::move(finding));
  }
  RankSet given_up;
  for (const Evidence& answer : picture.evidence)
    for (const EvidenceGroup& group : answer.groups)
      for (const EvidenceMember& member : group.members)
        if (const RankPicture* rank = picture.rank(rank_of(group, member));
            rank && member.dead && rank->place != RankPicture::Place::dead)
          given_up.insert(rank->rank);
  if (!given_up.empty()) {
    Finding finding = About{.inspector = "hang", .object = {}, .step = {}, .ranks = given_up}.finding(
        Severity::note, Verdict::dead, FindingKind::communicator);
    finding.message =
        fmt::format("NCCL's RAS considers {} dead (no answer for 60 s), though {} here: stopped, or without network",
                    given_up.words(), given_up.size() == 1 ? "its process runs" : "their processes run");
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace lockstep::inspect
