// Finds the job that the user names.
#pragma once
#include <string>

#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_hosts.h"

namespace lockstep::shell {

/// Adds to each job the ranks that run on other machines: those whose environment has its folder's name or that of its
/// launcher. Ranks that belong to none of `jobs` are jobs of their own.
void add_ranks_elsewhere(const std::vector<JobMember>& ranks, std::vector<Job>& jobs);

/// Returns the running job `name` (its id, the beginning of its id up to "-", or the process id of a rank), or the only
/// one where `name` is empty. `hosts` are other machines that may have ranks of it. Throws UsageError that lists the jobs
/// there are.
Job find_job(const std::string& name, const JobHosts* hosts = nullptr);

}  // namespace lockstep::shell
