// Makes the ranks of a Python job a session's ranks. A rank that has stopped (lockstep.breakpoint()) connects to the
// hub when it is asked to, and serves cells until it is let go; then it is away, and asked to come back at its next
// stop. The session starts and ends none of these processes.
//
//   away ⇄ ready          dead from both
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_hosts.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"

namespace lockstep::shell {

class JobGroup : public RankGroup {
 public:
  /// Asks the ranks that live to connect. `hosts`: other machines that have some, or null. Throws StartError.
  JobGroup(EventLoop& loop, Job job, std::unique_ptr<JobHosts> hosts, SessionDirectory& directory, Listener listener)
      : JobGroup(loop, job, job.world_size(), std::move(hosts), directory, std::move(listener)) {}
  ~JobGroup() override;

  /// Serves until the ranks that have stopped are connected.
  void wait_connected() override;
  /// Begins C++ cells: ranks load the prelude before the first one, also ranks that come later. Does not wait.
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  void kill(int rank) override;
  bool owns_processes() const override { return false; }
  std::string absence(int rank) const override;
  /// Ranks of a job are not judged by their logs: their agents are asked.
  void read_logs(const std::vector<inspect::RankPicture*>&, const inspect::LogPart&) const override {}

  const Job& job() const { return job_; }
  /// Returns ranks whose processes run and that have not stopped.
  RankSet away() const;
  /// Returns ranks whose processes have ended without a known failure: their launcher may have taken the wait status.
  const RankSet& finished() const { return finished_; }
  /// Returns those of `ranks` that live, as they describe themselves.
  std::vector<JobMember> members(const RankSet& ranks) const;
  /// Returns "ranks 0-1: stopped at train.py, line 31, in main", and a line for each other place. Ranks that have not
  /// stopped are asked what they do.
  std::string places(const RankSet& ranks) const;
  /// Asks the ranks that run to stop after the same training step, soon: all of them, or none. Returns an empty string,
  /// or why they can't.
  std::string stop_between_steps();
  /// Takes stop_between_steps() back. The ranks that have come to the step meanwhile, and `stopped`, go on. Returns
  /// those that did not within 10 s.
  RankSet take_stop_back(RankSet stopped);
  /// Lets `ranks` go on until their next stop. Returns at once.
  void resume(const RankSet& ranks) { let_go(ranks); }
  void grow(const SessionPlan& plan) override {
    RankGroup::grow(plan);
    members_.resize(static_cast<size_t>(world_size()));
  }

 protected:
  JobGroup(EventLoop& loop, Job job, int world_size, std::unique_ptr<JobHosts> hosts, SessionDirectory& directory,
           Listener listener);

  /// Reads which ranks there are now, and asks those to connect that can be asked since the last look.
  void look_for_ranks();
  /// Adds the ranks on other machines to the job, which is the first of `jobs`.
  virtual void add_elsewhere(std::vector<Job>& jobs) const;
  std::string hub_path_of(const JobMember& rank) const { return rank.proxy ? rank.proxy->hub_path() : hub_path(); }
  std::string hub_path() const { return endpoint_.substr(std::string("ipc://").size()); }
  std::optional<RankExit> take_end(int rank) override;
  void disconnected(int rank) override;

 private:
  /// What this group knows of a rank besides what all groups know.
  struct Member {
    Descriptor process;  // a pidfd; none: it has no agent yet, or runs on another machine
    bool is_known = false;
    std::optional<SeenEnd> end;  // of a rank on another machine
    bool left_alone = false;  // the user has given it up: it is not asked again
  };
  void buried(int rank, State before) override;
  void give_up(int rank, const std::string& why) override;
  void came(int rank) override;
  /// Ends the invitations: a rank that stops later waits for another shell, and says so.
  void begin_shutdown() override;

  /// Has ranks load the prelude, which is sent to those on other machines.
  void send_prelude(const RankSet& ranks);
  void watch_folders();
  /// Asks the rank to connect, now or at its next stop. Returns whether it has stopped.
  bool invite(int rank);
  void announce(int rank);
  /// Buries the rank in a moment, or, where its process is ending, when that has ended.
  void await_death(int rank);
  SeenEnd end_of(int rank) const;

  void ended_elsewhere(const JobMember& member, const SeenEnd& end);

  Job job_;
  const std::unique_ptr<JobHosts> hosts_;
  Descriptor new_files_;  // inotify, on the job's folders
  std::vector<Member> members_;  // by rank
  RankSet expected_;  // have stopped and not connected yet
  RankSet arrivals_;  // not announced yet
  RankSet finished_;
  MemoryKillCounter memory_kills_;
  Deadline announcement_;
  std::string prelude_;  // its file; empty: no C++ cell has run
  std::shared_ptr<const std::string> prelude_bytes_;  // once they have been sent
};

}  // namespace lockstep::shell
