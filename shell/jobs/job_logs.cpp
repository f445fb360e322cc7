#include "shell/jobs/job_logs.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "collectives/log/collective_log.h"
#include "collectives/log/collective_record_json.h"
#include "inspectors/hang/straggler.h"
#include "protocol/dist_error.h"
#include "protocol/job.h"

namespace lockstep::dist {
LOCKSTEP_JSON(FoundCall, call, signature, recent)
}  // namespace lockstep::dist

namespace lockstep::shell {

LOCKSTEP_DECLARED_JSON(LoggedCall, ranks, found)

namespace {

using inspect::Evidence;
using inspect::EvidenceCall;
using inspect::EvidenceSource;
using inspect::EvidenceState;

constexpr size_t kRecords = 2000;  // as many as the Flight Recorder keeps

/// Whether it is the group of all ranks: c10d calls it 0, and dist:: calls it default.
bool is_default(const std::string& group) { return group == "0" || group == "default"; }

std::string description_of(const dist::LoggedGroup& group, int world_size) {
  return is_default(group.name) && group.ranks.size() == static_cast<size_t>(world_size) ? inspect::kDefaultGroup : "";
}

EvidenceState state_of(const dist::CollectiveRecord& record) {
  if (record.state == dist::CollectiveState::done) return EvidenceState::completed;
  // One that has failed ended on this rank without a result, as if it were still in it.
  return record.on_device && record.started_ns == 0 ? EvidenceState::scheduled : EvidenceState::started;
}

EvidenceCall call_of(const dist::CollectiveRecord& record, const Evidence& log, int64_t to_realtime,
                     uint64_t signature) {
  const inspect::EvidenceGroup* group = log.group(record.group);
  EvidenceCall call{.group = record.group,
                    .group_description = group ? group->description : "",
                    .seq = record.seq,
                    .record = static_cast<int64_t>(record.entry),
                    .op = record.op,
                    .backend = "lockstep",
                    .signature = signature,
                    .point_to_point = record.point_to_point,
                    .state = state_of(record),
                    .created_ns = record.entered_ns + to_realtime};
  if (record.point_to_point && record.root >= 0) {
    call.peer = record.root;
    if (group) {
      const auto at = std::ranges::find(group->ranks, record.root);
      if (at != group->ranks.end()) call.peer = static_cast<int>(at - group->ranks.begin());
    }
  }
  if (!record.point_to_point) {
    if (record.root >= 0) call.variant = "root " + std::to_string(record.root);
    if (!record.reduce_op.empty()) call.variant += (call.variant.empty() ? "" : " ") + record.reduce_op;
  }
  if (!record.dtype.empty()) {
    call.input_shapes.resize(static_cast<size_t>(std::max(record.tensor_count, 1)));
    call.input_shapes.front() = record.shape;
    call.input_dtypes.push_back(record.dtype);
  }
  if (record.done_ns > 0) call.completed_ns = record.done_ns + to_realtime;
  if (!record.place.file.empty())
    call.frames.push_back({.function = record.place.function, .file = record.place.file, .line = record.place.line});
  return call;
}

/// Which collectives all ranks of a group have entered, and when.
std::vector<inspect::GroupTimes> times_of(const std::vector<const Evidence*>& evidence) {
  std::map<std::string, inspect::GroupTimes> groups;
  for (const inspect::EvidenceRow& row : side_by_side(evidence)) {
    if (!row.missing.empty() || !row.unknown.empty() || row.calls.size() < 2) continue;
    int64_t all_there = 0;  // it can't end before that, and of Gloo the recorder has no ends
    for (const auto& [rank, call] : row.calls) all_there = std::max(all_there, call->created_ns);
    const EvidenceCall& first = *row.calls.begin()->second;
    // Other groups may share a description: all of one dimension of a mesh do.
    const std::string name = first.group_description == inspect::kDefaultGroup ? inspect::kDefaultGroup : row.group;
    inspect::GroupTimes& group = groups[name];
    group.name = name;
    group.newest = {.name = first.op,
                    .seq = row.seq,
                    .shape = first.input_shapes.empty() ? std::vector<int64_t>() : first.input_shapes.front(),
                    .dtype = first.input_dtypes.empty() ? "" : first.input_dtypes.front(),
                    .group = name};
    for (const auto& [rank, call] : row.calls)
      group.stays[rank][row.seq] = {call->created_ns, std::max(call->completed_ns, all_there)};
  }
  std::vector<inspect::GroupTimes> result;
  for (auto& [name, group] : groups) result.push_back(std::move(group));
  return result;
}

/// Nothing where there is no log of that process, or it is not complete, or of another version of Lockstep.
std::optional<dist::CollectiveLogReader> open_log(const std::string& folder, int rank, int64_t pid) {
  const std::string path = protocol::rank_log(folder, rank);
  if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
  try {
    std::optional<dist::CollectiveLogReader> log(std::in_place, path);
    if (pid != 0 && log->pid() != pid) log.reset();  // of an earlier attempt
    return log;
  } catch (const dist::Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<Evidence> read_rank_log(const std::string& folder, int rank, int64_t pid) {
  const auto log = open_log(folder, rank, pid);
  if (!log) return std::nullopt;
  Evidence evidence{.source = EvidenceSource::collective_log, .origin = protocol::rank_log(folder, rank), .rank = rank};
  for (const dist::LoggedGroup& group : log->groups()) {
    if (!group.member) continue;
    evidence.groups.push_back({.name = group.name,
                               .description = description_of(group, log->world_size()),
                               .size = static_cast<int>(std::ssize(group.ranks) + group.unnamed),
                               .ranks = group.unnamed == 0 ? group.ranks : std::vector<int>(),
                               .members = {}});
  }
  const auto records = log->last(kRecords);
  // Groups that the program has destroyed have no members any more.
  for (const dist::CollectiveRecord& each : records)
    if (!evidence.group(each.group))
      evidence.groups.push_back({.name = each.group,
                                 .description = is_default(each.group) ? inspect::kDefaultGroup : "",
                                 .ranks = {},
                                 .members = {}});
  for (const dist::CollectiveRecord& each : records)
    evidence.calls.push_back(
        call_of(each, evidence, log->realtime_minus_monotonic(), dist::signature_of(*log, each.entry)));
  drop_destroyed_groups(evidence);
  return evidence;
}

std::vector<dist::CallDigests> read_call_digests(const std::string& folder, int rank, int64_t pid) {
  const auto log = open_log(folder, rank, pid);
  return log ? dist::call_digests(*log) : std::vector<dist::CallDigests>();
}

LoggedCall read_logged_call(const std::string& folder, int rank, int64_t pid, const nlohmann::json& request) {
  const auto log = open_log(folder, rank, pid);
  const uint64_t incarnation = request.value("incarnation", uint64_t{0});
  if (!log || incarnation == 0) return {};
  return {.ranks = dist::ranks_of(*log, incarnation),
          .found =
              dist::find_call(*log, incarnation, request.value("seq", int64_t{0}), request.value("recent", size_t{0}))};
}

void add_rank_log(Evidence log, inspect::Remains& remains) {
  const int rank = log.rank.value_or(-1);
  std::erase_if(remains.evidence, [&](const Evidence& each) {
    return each.rank == rank && each.source == EvidenceSource::collective_log;
  });
  for (Evidence& each : remains.evidence) {
    if (each.rank != rank || each.source != EvidenceSource::flight_recorder) continue;
    // Messages of groups with another backend are in the recorder alone.
    const auto is_logged = [&](const EvidenceCall& call) {
      return log.group(call.group) &&
             (!call.point_to_point || std::ranges::any_of(log.calls, [&](const EvidenceCall& other) {
               return other.group == call.group && other.point_to_point;
             }));
    };
    std::erase_if(each.calls, is_logged);
    std::erase_if(each.groups, [&](const inspect::EvidenceGroup& group) { return log.group(group.name); });
  }
  std::erase_if(remains.evidence, [&](const Evidence& each) {
    return each.rank == rank && each.source == EvidenceSource::flight_recorder && each.calls.empty();
  });
  remains.evidence.push_back(std::move(log));
  ++remains.files;
}

std::optional<Finding> straggler_of_job(const std::vector<Evidence>& evidence) {
  std::vector<const Evidence*> calls;
  bool by_recorder = false;
  for (const Evidence& each : evidence) {
    if (each.source != EvidenceSource::flight_recorder && each.source != EvidenceSource::collective_log) continue;
    by_recorder = by_recorder || each.source == EvidenceSource::flight_recorder;
    calls.push_back(&each);
  }
  auto finding = inspect::find_straggler(times_of(calls));
  if (finding && by_recorder) finding->message += "; by the Flight Recorder's times";
  return finding;
}

}  // namespace lockstep::shell
