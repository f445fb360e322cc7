// The collective log of a rank of a Python job: one for all process groups that have the backend `lockstep`. It lies in
// the job's folder, where a shell reads it also when the rank is stuck or was killed; without a folder in anonymous
// memory. Call sites are lines of Python.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "collectives/log/collective_log.h"
#include "collectives/watch/caller.h"
#include "collectives/watch/hang_watch.h"
#include "collectives/watch/watched_group.h"

namespace lockstep::python {

/// The groups of a rank share it.
struct JobLog {
  std::shared_ptr<dist::CollectiveLog> log;
  std::shared_ptr<dist::HangWatch> watch;
  std::shared_ptr<dist::AbortFlag> abort;
  int rank = 0, world_size = 1;  // of the default group
};

/// Makes the log, or returns the one there is. For another rank or world size, after the program has made its groups
/// anew, it makes a new log. Throws dist::Error.
JobLog use_job_log(int rank, int world_size);

/// The job has so many ranks from now on. The log stays.
void resize_job_log(int world_size);

/// Returns the line of the program that the calling thread is in, by its number in the log; and whether c10d calls,
/// rather than a function of torch.distributed.
dist::Caller find_python_caller();

/// Returns nothing where no group has the backend.
std::optional<JobLog> current_job_log();
/// Returns null where no group has the backend.
std::shared_ptr<dist::CollectiveLog> job_log();

/// Unlinks the file at the end of the process, unless a shell made the folder.
void remove_job_log();

}  // namespace lockstep::python
