// Watches the ranks of jobs that run on this machine: a rank comes with its file, and ends with its process.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class RankWatch {
 public:
  struct Listener {
    /// Called when a rank whose process runs, or has ended and nobody has waited for it, is seen for the first time.
    std::function<void(const JobMember&)> came;
    /// Called when a rank describes itself otherwise than before: it has stopped somewhere, or ends.
    std::function<void(const JobMember&)> changed;
    /// Called when the process has ended. SeenEnd::after_failure is not set: this class knows of no other failures.
    std::function<void(const JobMember&, SeenEnd)> ended;
  };

  /// `read` returns the ranks by what their files say now.
  RankWatch(EventLoop& loop, std::function<std::vector<JobMember>()> read, Listener listener);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// Reads the files. Called when some may have changed.
  void look();

 private:
  struct Watched {
    JobMember member;
    Descriptor pidfd;
  };
  void end(int64_t pid);
  void report_end(const JobMember& member);

  EventLoop& loop_;
  const std::function<std::vector<JobMember>()> read_;
  const Listener listener_;
  std::map<int64_t, Watched> watched_;  // by pid
  std::set<std::pair<int64_t, uint64_t>> ended_;  // pids and start times of ranks whose ends have been reported
  MemoryKillCounter memory_kills_;
};

}  // namespace lockstep::shell
