// Reads the collective logs of a Python job's ranks whose groups have the backend `lockstep`, as evidence for judge(),
// and finds the rank that the others wait for, by the times of the logs or of the Flight Recorder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/call_digests.h"
#include "inspectors/remains/remains.h"
#include "protocol/finding.h"

namespace lockstep::shell {

/// Reads the log of a rank, which may be stuck or dead, from the job's folder. `pid` is the rank's process; 0: any.
/// Returns nothing where there is no log of that process.
std::optional<inspect::Evidence> read_rank_log(const std::string& folder, int rank, int64_t pid);

/// Returns digests of what the rank of such a log has called; none where there is no log of that process.
std::vector<dist::CallDigests> read_call_digests(const std::string& folder, int rank, int64_t pid);

/// Adds the log in place of the evidence of the rank's Flight Recorder about the same groups.
void add_rank_log(inspect::Evidence log, inspect::Remains& remains);

/// Makes a note about a rank that nearly always comes last, with the time that the others wait; nothing without one.
std::optional<Finding> straggler_of_job(const std::vector<inspect::Evidence>& evidence);

}  // namespace lockstep::shell
