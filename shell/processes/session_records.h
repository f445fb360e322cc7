// Finds the sessions of this user on this machine, by what each left in the runtime folder: those that run, and those
// that were killed before they could tidy up. A session that ended by itself leaves nothing.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::shell {

struct WorkerRecord {
  int rank = 0;
  pid_t pid = 0;
  uint64_t start_time = 0;
  bool is_alive = false;
};

struct SessionRecord {
  std::string id, path;
  pid_t pid = 0;
  bool is_alive = false;  // the shell that owns it: its pid and start time are the same
  bool is_started = false;  // its ranks have been recorded
  int64_t started = 0;  // seconds since 1970; 0: unknown
  int ranks = 0;
  std::string backend, libtorch, compiler;
  std::vector<WorkerRecord> workers;
  std::vector<int64_t> cells;  // numbers of cells whose text is there, ascending
};

/// Returns all sessions in `folders` (protocol::runtime_directories()), oldest first. Other folders are left out.
std::vector<SessionRecord> read_sessions(const std::vector<std::string>& folders);

struct Cleaned {
  std::vector<std::string> sessions;  // removed
  std::vector<std::string> problems;  // what could not be removed, and why
  int workers = 0;  // that outlived their shell and were ended
};

/// Removes what dead sessions left: their folders, workers of theirs that still run (known by pid and start time), and
/// processes that these have started (known by their environment). Nothing else is ever signalled.
Cleaned clean_sessions(const std::vector<std::string>& folders);

/// Does the same for shells that served a prompt over a Python job, and for those that were killed before they wrote
/// anything: there is nothing in them to look at.
Cleaned clean_prompts(const std::vector<std::string>& folders);

}  // namespace lockstep::shell
