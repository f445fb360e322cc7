// Finds the ranks of jobs that run on this machine and were started without Lockstep: by the variables with which
// torchrun, Slurm, Open MPI and PMI number them.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::shell {

/// Says what a process needs to read others, where the kernel refuses it.
std::string how_to_be_allowed();

struct RunningRank {
  int rank = 0;
  int64_t pid = 0;
  int local_rank = -1;  // -1: unknown
  std::string script, folder;  // "train.py", and where it was started
  std::string python_folder;  // of its interpreter, as it was started: where its packages have their programs
  bool uses_gpu = false;
  std::map<std::string, std::string> variables;  // those that are asked for here
};

/// A process of a job that has ended, which its parent has not asked for yet: which rank it was is not known.
struct EndedProcess {
  int64_t pid = 0;
  int wait_status = 0;
};

struct RunningJob {
  std::string id;  // "e2df97e3-…", "localhost:29500", "Slurm 17.0"
  std::string launcher;  // "torchrun", "Slurm", "Open MPI", "PMI"; empty: not known
  int world_size = 0;
  std::vector<RunningRank> ranks;  // in order
  RankSet elsewhere;  // ranks that are, or may be, on other machines
  std::vector<EndedProcess> ended;
  bool numbered_here = false;  // nothing says which rank a process is: they are numbered as they were started

  RankSet present() const;
  RankSet world() const;
  /// Returns ranks of this machine that have no process.
  RankSet gone() const { return world() - present() - elsewhere; }
};

/// Returns the jobs of this user, or those of `pids`: ranks, or launchers of ranks. A process that does not answer within
/// `limit` is left out. Throws UsageError for a process that is neither.
std::vector<RunningJob> find_running_jobs(const std::vector<int64_t>& pids, std::chrono::milliseconds limit);

/// Returns the one that is meant: `id` (or its beginning), or the only one. Throws UsageError that lists those there are.
RunningJob choose_job(std::vector<RunningJob> jobs, const std::string& id);

}  // namespace lockstep::shell
