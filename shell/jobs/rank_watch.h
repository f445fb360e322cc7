// Watches the ranks of jobs that run on this machine: a rank comes with its file, and ends with its process.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class RankWatch {
 public:
  struct Listener {
    /// A rank whose process runs is seen for the first time.
    std::function<void(const JobMember&)> came;
    /// A rank says something else of itself than before: it has stopped somewhere, or ends.
    std::function<void(const JobMember&)> changed;
    /// The process has ended. Nothing is known here of failures of other ranks (SeenEnd::after_failure).
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

  EventLoop& loop_;
  const std::function<std::vector<JobMember>()> read_;
  const Listener listener_;
  std::map<int64_t, Watched> watched_;  // by pid
  MemoryKillCounter memory_kills_;
};

}  // namespace lockstep::shell
