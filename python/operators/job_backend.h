// The backend `lockstep` of torch.distributed: the watched backend of sessions, over shared memory or Gloo for CPU
// tensors and, where Python gives it, over NCCL for CUDA tensors. docs/python.md says what it is for.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "python/operators/call.h"

namespace lockstep::python {

/// Makes the backend of one process group. Collective over the group's ranks, which meet in its store.
///
/// `box` names a process group in c10d's registry that holds what Python and this library hand each other, since there
/// is no header of Python here: its store is the new group's; its backend for CUDA, if it has one, is the transport for
/// CUDA tensors; and the backend that is made becomes its backend for CPU tensors.
///
/// Arguments: "box", "group" (c10d's name of the group), "label" (its name for people), "rank" and "ranks" (the rank in the group; the ranks of the
/// default group, in order), "global_rank", "world_size" (of the default group), "timeout" (seconds), "check" (whether
/// calls are compared before data moves). Throws dist::Error naming ranks that do not come within the timeout.
nlohmann::json make_job_backend(const Call& call);

/// Returns {"groups": c10d's names of the groups of this rank that have the backend}, in the order in which they were made.
nlohmann::json job_groups();

/// The numbers of the ranks of a group of job_groups() in the session or job, by which findings call them.
struct JobRanks {
  int rank = 0, world_size = 1;
  std::vector<int> ranks;
};
/// Returns nothing for a group that has another backend.
std::optional<JobRanks> ranks_of_job_group(const std::string& group);

/// The session of this rank has "world_size" ranks from now on. Its groups and its log stay.
nlohmann::json resize_job(const Call& call);

/// Returns "missing" ({GROUP: RANKS}: members of a group that have not made it, or of other ranks) and "fresh" (ranks that
/// say "is_fresh": their processes have replaced lost ones). Collective over "live" ranks. "generation" and "timeout" as in
/// reconnect_job_backend.
nlohmann::json compare_job_groups(const Call& call);

/// Gives the group "group" new connections in place of those that it has; a group of which a rank is not among "live"
/// gets none, and says so, as does one that the ranks "without" have not made. Collective over its live ranks. "box"
/// and "cuda" as in make_job_backend, "generation": a number that no earlier call had, "timeout" (seconds), "aborts":
/// what job_aborts said before; an abort_job_groups after that ends this call, and compare_job_groups, with
/// dist::Aborted.
nlohmann::json reconnect_job_backend(const Call& call);

/// Frees a rank of a session from the collectives of all its groups, for the "reason"; they need new connections then,
/// and end_job_abort after these, which does nothing where there were more than "aborts" meanwhile. Any thread may call
/// it.
nlohmann::json abort_job_groups(const Call& call);
nlohmann::json end_job_abort(const Call& call);
/// Returns the "count" of abort_job_groups.
nlohmann::json job_aborts(const Call& call);

/// Collectives from here on are those of statement "step" of "cell". Returns how often this process has met other ranks
/// so far ("meetings": collectives/log/meetings.h).
nlohmann::json enter_cell(const Call& call);
/// From "begins" (true) on, until false, what this process says to others is the making of a wrapper, and no meeting.
nlohmann::json make_wrapper(const Call& call);
/// Returns what the message Done says about collectives, "regroup" and "collectives", and "meetings" as enter_cell.
nlohmann::json leave_cell(const Call& call);
/// Returns the "calls" that were entered and are not done, each a protocol::question::Collective with its "entry" in the
/// log, and where the "last" call was.
nlohmann::json calls_in_flight(const Call& call);

/// Returns the groups that have the backend, with what their logs say: {"0": {"enqueued": 4, "completed": 3}}.
nlohmann::json progress_of_job_log();

}  // namespace lockstep::python
