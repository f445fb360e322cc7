// Finds how the ranks of a job, which are no children of this process, have ended: from their reports, from the
// kernel's record of a process that its parent has not asked for yet, and from the out-of-memory killer's counters.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/remains/remains.h"
#include "shell/jobs/job_folder.h"
#include "shell/processes/deaths.h"
#include "shell/processes/rank_place.h"

namespace lockstep::shell {

/// Returns what waitpid() would give for a process that has ended; nothing if it runs, or its parent has asked, or the
/// process did not begin at `start_time` (0: any).
std::optional<int> wait_status_of_zombie(int64_t pid, uint64_t start_time = 0);

/// Whether the process has ended, or is about to: it writes a core file, say, which can take minutes.
bool is_ending(int64_t pid);

/// Returns CLOCK_REALTIME in nanoseconds.
int64_t realtime_ns();

struct SeenEnd {
  int rank = 0;
  int64_t pid = 0;
  std::optional<int> wait_status;
  std::optional<protocol::RankEnd> said;
  bool out_of_memory = false;  // killed before any other failure, and the counter has gone up
  bool of_machine = false;  // that counter is the machine's
  bool after_failure = false;  // another rank had failed, or the launcher was to end, which ends the ranks
  bool unseen = false;  // it had ended before it could be watched, and its launcher says how
  int64_t time_s = 0;
  std::string lost;  // why the process, which may still run, can't be seen any more; empty: it has ended
  int64_t seen_ns = 0;  // CLOCK_REALTIME when the process was seen to have ended; 0: it was not seen

  /// False for a rank that has said nothing and whose parent has taken its wait status: by os._exit(0), or killed.
  bool is_known() const { return said || wait_status; }
  /// Whether there is neither an exception nor a signal nor an exit code other than 0.
  bool is_clean() const;
  /// Sets `out_of_memory` where SIGKILL ended the rank and `kills` (MemoryKillCounter::rise()) are not none.
  void note(const std::optional<MemoryKills>& kills);
  /// Returns "was killed by SIGKILL: probably out of memory (…)".
  std::string words() const;
  /// Returns the end as sessions report it. `is_here`: the process ran on this machine, which has its core file.
  RankExit exit(bool is_here) const;
};

/// Returns the ranks that failed, as torchrun reports them, and those that it has ended then; empty without a report.
std::vector<SeenEnd> read_launcher_report(const std::string& folder);

/// Adds an end for judge(). An exception becomes an error, everything else what the rank does.
void add_end(const SeenEnd& end, inspect::Remains& remains);

}  // namespace lockstep::shell
