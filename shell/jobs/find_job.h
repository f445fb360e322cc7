// Finds the job that a person means.
#pragma once
#include <string>

#include "shell/jobs/job_folder.h"

namespace lockstep::shell {

/// Returns the running job `name` (its id, the beginning of its id up to "-", or the process id of a rank), or the only
/// one where `name` is empty. Throws UsageError that lists the jobs there are.
Job find_job(const std::string& name);

}  // namespace lockstep::shell
