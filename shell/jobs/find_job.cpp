#include "shell/jobs/find_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "shell/processes/session_records.h"

namespace lockstep::shell {
namespace {

/// Returns a line for each: "1028-129bd885  2 of 2 ranks of /home/me/train.py, in /home/me, since 2026-11-22 20:44:56".
std::string list_of(const std::vector<Job>& jobs) {
  std::string text;
  for (const Job& job : jobs) {
    const auto live = std::ranges::find_if(job.ranks, [](const JobMember& each) { return each.is_alive; });
    text += fmt::format("\n  {}  {} of {} ranks", job.id, job.live_ranks().size(), job.world_size());
    if (live == job.ranks.end()) continue;
    const protocol::JobRank& rank = live->facts;
    if (!rank.script.empty()) text += " of " + rank.script;
    std::error_code gone;
    if (const auto folder = std::filesystem::read_symlink(fmt::format("/proc/{}/cwd", rank.pid), gone); !gone)
      text += ", in " + folder.string();
    const std::time_t started = rank.started;
    std::tm local = {};
    char when[32];
    if (::localtime_r(&started, &local) && std::strftime(when, sizeof when, "%F %T", &local) > 0)
      text += fmt::format(", since {}", when);
  }
  return text;
}

bool is_named(const Job& job, const std::string& name) {
  if (job.id == name || job.id.substr(0, job.id.find('-')) == name) return true;
  for (const JobMember& rank : job.ranks)
    if (rank.is_alive && std::to_string(rank.facts.pid) == name) return true;
  return false;
}

bool is_of_job(const JobMember& rank, const Job& job) {
  return std::ranges::any_of(job.ranks, [&](const JobMember& each) {
    const protocol::JobRank &one = each.facts, &other = rank.facts;
    return (!one.run.empty() && one.run == other.run) || (!one.watch.empty() && one.watch == other.watch);
  });
}

}  // namespace

void add_ranks_elsewhere(const std::vector<JobMember>& ranks, std::vector<Job>& jobs) {
  for (const JobMember& rank : ranks) {
    auto job = std::ranges::find_if(jobs, [&](const Job& each) { return is_of_job(rank, each); });
    if (job == jobs.end()) {
      const std::string folder = std::filesystem::path(rank.folder()).filename();
      jobs.push_back({.id = folder.substr(folder.find('-') + 1), .folders = {}, .ranks = {}});
      job = jobs.end() - 1;
    }
    const auto known = std::ranges::find_if(job->ranks, [&](const JobMember& each) {
      return each.proxy == rank.proxy && each.facts.pid == rank.facts.pid;
    });
    if (known != job->ranks.end())
      *known = rank;
    else
      job->ranks.push_back(rank);
    std::ranges::sort(job->ranks, {}, [](const JobMember& each) { return each.facts.rank; });
  }
}

Job find_job(const std::string& name, const JobHosts* hosts) {
  clean_jobs(protocol::runtime_directories());
  clean_prompts(protocol::runtime_directories());
  std::vector<Job> jobs = read_jobs(protocol::runtime_directories());
  if (hosts) add_ranks_elsewhere(hosts->ranks(), jobs);
  std::erase_if(jobs, [](const Job& job) { return job.is_session || job.live_ranks().empty(); });
  if (jobs.empty())
    throw UsageError(
        fmt::format("no Python job of yours that can be attached to runs on {}: a job can once its ranks have called a "
                    "function of the package lockstep, or if `lockstep run -- …` has started it (docs/python.md)",
                    hosts ? "these hosts" : "this machine"));
  if (name.empty()) {
    if (jobs.size() == 1) return jobs.front();
    throw UsageError("several jobs run; name one: lockstep attach JOB" + list_of(jobs));
  }
  for (const Job& job : jobs)
    if (is_named(job, name)) return job;
  throw UsageError("there is no job " + name + "; there is" + list_of(jobs));
}

}  // namespace lockstep::shell
