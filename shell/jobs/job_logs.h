// Reads the collective logs of a Python job's ranks whose groups have the backend `lockstep`, as evidence for judge(),
// and finds the rank that the others wait for, by the times of the logs or of the Flight Recorder.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/call_digests.h"
#include "collectives/log/new_calls.h"
#include "inspectors/remains/remains.h"
#include "protocol/finding.h"

namespace lockstep::shell {

/// Reads the log of a rank, which may be stuck or dead, from the job's folder. `pid` is the rank's process; 0: any.
/// Returns nothing where there is no log of that process.
std::optional<inspect::Evidence> read_rank_log(const std::string& folder, int rank, int64_t pid);

/// Returns digests of what the rank of such a log has called; none where there is no log of that process.
std::vector<dist::CallDigests> read_call_digests(const std::string& folder, int rank, int64_t pid);

/// What the log of a rank says of the call with the number `seq` of a group (dist::Group::incarnation).
struct LoggedCall {
  std::vector<int> ranks;  // of the group; none: the rank is not in it
  std::optional<dist::FoundCall> found;
};
/// Reads it, with the newest `recent` calls. `request`: kCallRequest with "incarnation", "seq" and "recent".
LoggedCall read_logged_call(const std::string& folder, int rank, int64_t pid, const nlohmann::json& request);

void to_json(nlohmann::json& json, const LoggedCall& call);
void from_json(const nlohmann::json& json, LoggedCall& call);

/// Adds the log in place of the evidence of the rank's Flight Recorder about the same groups.
void add_rank_log(inspect::Evidence log, inspect::Remains& remains);

/// Makes a note about a rank that nearly always comes last, with the time that the others wait; nothing without one.
std::optional<Finding> straggler_of_job(const std::vector<inspect::Evidence>& evidence);

}  // namespace lockstep::shell
