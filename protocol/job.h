// A Python job as its ranks describe themselves to a shell of the same user: the files of the job's folder.
//
//   <runtime folder>/job-<id>/     mode 0700; `lockstep run -- …` makes it and names it to the ranks in LOCKSTEP_JOB;
//                                  ranks on other machines make one of that name there
//     job.json                     only where a process watches the job, `lockstep run` or the relay of this machine:
//                                  {"pid", "start_time", "launcher"}
//     judge.json                   only from a relay: a `lockstep run` on another machine judges the job,
//                                  {"pid", "start_time", "host"}; and its verdict.json, {"exit_code", "ends", "host"}
//     launcher.json                only under `lockstep run`, once ranks have failed: from torchrun how they ended, and
//                                  those that it has ended then, [{"rank", "pid", "exitcode", "time"}, …]; or from
//                                  `lockstep run` itself where it has started the rank and another machine's judges
//     rank-R.json                  JobRank, written by rank R (python/agent)
//     rank-R.sock                  where rank R answers requests
//     rank-R.log                   collective log (collectives/log) of a rank in C++, or whose groups have the backend
//                                  `lockstep`
//     rank-R.trace, rank-R.nccl-trace  dumps of the Flight Recorder of a rank that raised an exception, if a shell watches
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/json_fields.h"

namespace lockstep::protocol {

inline constexpr const char* kJobVariable = "LOCKSTEP_JOB";
inline constexpr const char* kJobPrefix = "job-";

struct JobFrame {
  std::string function, file;
  int64_t line = 0;
};

/// How a rank ended, in its own words. One that was killed has said nothing.
struct RankEnd {
  std::string how;  // "finished", "threw"; of a program in C++ "exited": its exit code says more
  std::string type, message;  // of an exception; `message` may have several lines
  std::vector<JobFrame> frames;  // innermost first
  int64_t time = 0;  // seconds, CLOCK_REALTIME
  std::map<std::string, int64_t> calls;  // group, as c10d names it → number of its last collective that was called
};

/// Where a rank is stopped: in lockstep.breakpoint(), or after a training step for a shell that has asked for it.
struct RankStop {
  std::string place;  // "train.py, line 31, in main"
  int64_t number = 0;  // of the rank's stops, from 1
  bool is_served = false;  // a shell has the rank at its prompt; else the rank waits for one
  std::optional<double> limit_s;  // for which it waits for a shell; none: without limit
};

/// A job has this many ranks at most: a file that claims more is no rank's.
inline constexpr int kMostRanks = 1 << 16;

struct JobRank {
  int rank = 0, world_size = 1, local_rank = 0;
  int local_world_size = 0;  // ranks of the job on this machine; 0: the launcher does not say
  int64_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat: a later process with the same pid has another
  std::string host, torch, lockstep, python, script;
  // What is the same for all ranks of a job on every machine, unlike the folder; empty where nothing says it.
  std::string run;  // the launcher's name of it: "none 10.9.0.11:29501 #0", "Slurm 17.0"
  std::string watch;  // "job-4711-0fdca92a": the folder that LOCKSTEP_JOB names, on the machine of `lockstep run`
  int64_t started = 0;  // seconds, CLOCK_REALTIME
  std::optional<RankEnd> end;
  std::optional<RankStop> stop;

  /// Whether a rank can have these numbers. They may come from another machine.
  bool is_possible() const { return rank >= 0 && rank < world_size && world_size <= kMostRanks; }
};

LOCKSTEP_JSON(JobFrame, function, file, line)
LOCKSTEP_JSON(RankEnd, how, type, message, frames, time, calls)
LOCKSTEP_JSON(RankStop, place, number, is_served, limit_s)
LOCKSTEP_JSON(JobRank, rank, world_size, local_rank, local_world_size, pid, start_time, host, torch, lockstep, python,
              script, run, watch, started, end, stop)

std::string launcher_report(const std::string& folder);
std::string rank_file(const std::string& folder, int rank);
std::string rank_socket(const std::string& folder, int rank);
std::string rank_log(const std::string& folder, int rank);
/// `nccl` chooses the trace of NCCL's groups; without it the path is that of all others.
std::string rank_trace(const std::string& folder, int rank, bool nccl);

}  // namespace lockstep::protocol
