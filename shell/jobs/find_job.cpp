#include "shell/jobs/find_job.h"

#include <fmt/format.h>

#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "shell/processes/session_records.h"

namespace lockstep::shell {
namespace {

std::string list_of(const std::vector<Job>& jobs) {
  std::string text;
  for (const Job& job : jobs)
    text += fmt::format("{}{} ({} of {} ranks)", text.empty() ? "" : ", ", job.id, job.live_ranks().size(),
                        job.world_size());
  return text;
}

bool is_named(const Job& job, const std::string& name) {
  if (job.id == name || job.id.substr(0, job.id.find('-')) == name) return true;
  for (const JobMember& rank : job.ranks)
    if (rank.is_alive && std::to_string(rank.facts.pid) == name) return true;
  return false;
}

}  // namespace

Job find_job(const std::string& name) {
  clean_jobs(protocol::runtime_directories());
  clean_prompts(protocol::runtime_directories());
  std::vector<Job> jobs = read_jobs(protocol::runtime_directories());
  std::erase_if(jobs, [](const Job& job) { return job.live_ranks().empty(); });
  if (jobs.empty())
    throw UsageError(
        "no Python job of yours that can be attached to runs on this machine: a job can once its ranks have called a "
        "function of the package lockstep, or if `lockstep run -- …` has started it (docs/python.md)");
  if (name.empty()) {
    if (jobs.size() == 1) return jobs.front();
    throw UsageError("several jobs run; name one: lockstep attach JOB, of " + list_of(jobs));
  }
  for (const Job& job : jobs)
    if (is_named(job, name)) return job;
  throw UsageError("there is no job " + name + "; there is " + list_of(jobs));
}

}  // namespace lockstep::shell
