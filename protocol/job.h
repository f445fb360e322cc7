// A Python job as its ranks describe themselves to a shell of the same user: the files of the job's folder.
//
//   <runtime folder>/job-<id>/     mode 0700; `lockstep run -- …` makes it and names it to the ranks in LOCKSTEP_JOB
//     job.json                     only from `lockstep run`: {"pid", "start_time", "launcher"}
//     rank-R.json                  JobRank, written by rank R (python/agent)
//     rank-R.sock                  where rank R answers requests
//     rank-R.log                   collective log (collectives/log) of a rank whose groups have the backend `lockstep`
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
  std::string how;  // "finished", "threw"
  std::string type, message;  // of an exception; `message` may have several lines
  std::vector<JobFrame> frames;  // innermost first
  int64_t time = 0;  // seconds, CLOCK_REALTIME
  std::map<std::string, int64_t> calls;  // group, as c10d names it → number of its last collective that was called
};

struct JobRank {
  int rank = 0, world_size = 1, local_rank = 0;
  int64_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat: a later process with the same pid has another
  std::string host, torch, lockstep, python, script;
  int64_t started = 0;  // seconds, CLOCK_REALTIME
  std::optional<RankEnd> end;
};

LOCKSTEP_JSON(JobFrame, function, file, line)
LOCKSTEP_JSON(RankEnd, how, type, message, frames, time, calls)
LOCKSTEP_JSON(JobRank, rank, world_size, local_rank, pid, start_time, host, torch, lockstep, python, script, started,
              end)
void from_json(const nlohmann::json& json, JobRank& rank);

std::string rank_file(const std::string& folder, int rank);
std::string rank_socket(const std::string& folder, int rank);
std::string rank_log(const std::string& folder, int rank);
/// `nccl`: of NCCL's groups; else of all others.
std::string rank_trace(const std::string& folder, int rank, bool nccl);

/// Writes `text` to `path` at once: others see the old file or the new one. Throws Error.
void write_at_once(const std::string& path, const std::string& text);

}  // namespace lockstep::protocol
