// Judges a watched job by its findings: its exit code, and whether a job without progress has stalled.
#pragma once
#include <optional>
#include <vector>

#include "inspectors/remains/remains.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::shell {

/// Returns the exit code of a job that failed. The first cause is the last fault.
int exit_code_of_failure(const std::vector<Finding>& findings);
/// Returns the exit code of a job that was ended without progress. Differing collectives in which it hangs are a hang.
int exit_code_of_stall(const std::vector<Finding>& findings);

/// Makes notes for a job that goes on: what is likely, not proven, is no fault.
std::vector<Finding> as_notes(std::vector<Finding> findings);

/// Whether ranks wait for one that has ended, which is proof that they wait for ever.
bool is_proven_stall(const std::vector<Finding>& findings);

/// Judges ranks that have made no progress for `seconds`, of which none waits for another one in a collective. Returns
/// nothing where a rank computes, reads, waits for a device or a child, or has not answered: it may go on. If all wait
/// for something else, none will. `absent` are ranks of the job that nobody has seen.
std::optional<Finding> stall_without_collective(const inspect::Remains& remains, const RankSet& ranks, double seconds,
                                                const RankSet& absent = {});

}  // namespace lockstep::shell
