// The ranks of a Python job as a session's ranks. A rank that has stopped (lockstep.breakpoint()) connects to the hub
// when it is asked to, and serves cells until it is let go; then it is away, and asked to come back at its next stop.
// The session starts and ends none of these processes.
//
//   away ⇄ connected (ready)          dead from both
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"

namespace lockstep::shell {

class JobGroup : public RankGroup {
 public:
  /// Asks the ranks that live to connect. Throws StartError.
  JobGroup(EventLoop& loop, Job job, SessionDirectory& directory, Listener listener);
  ~JobGroup() override;

  /// Serves until the ranks that have stopped are connected.
  void wait_connected() override;
  /// C++ cells begin: ranks load the prelude before the first of them, those that come later as well. Does not wait.
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  void cancel_start(const std::string& why) override { start_error_ = why; }
  /// Lets all ranks go on, and asks none to come back.
  void shutdown() override;

  Hub& hub() override { return *hub_; }
  int world_size() const override { return static_cast<int>(ranks_.size()); }
  RankSet live() const override;
  bool has_store() const override { return true; }
  const RankInfo& rank(int rank) const override { return ranks_.at(static_cast<size_t>(rank)).info; }
  void kill(int rank) override;
  nlohmann::json describe() const override { return nlohmann::json::array(); }
  bool owns_processes() const override { return false; }
  std::string absence(int rank) const override;

  const Job& job() const { return job_; }
  /// Ranks whose processes run and that have not stopped.
  RankSet away() const;
  /// Of `ranks`, as they describe themselves; those that live.
  std::vector<JobMember> members(const RankSet& ranks) const;
  /// "ranks 0-1: stopped at train.py, line 31, in main", and a line for each other place. Ranks that have
  /// not stopped are asked what they do.
  std::string places(const RankSet& ranks) const;
  /// Asks the ranks that run to stop after the same training step, soon: all of them, or none. Returns an empty string,
  /// or why they can't.
  std::string stop_between_steps();
  /// Takes that back. Ranks that have come to the step meanwhile, and `stopped`, which have, go on. Returns those that
  /// did not within 10 s.
  RankSet take_stop_back(RankSet stopped);
  /// Lets `ranks` go on until their next stop. Returns at once.
  void resume(const RankSet& ranks);

 private:
  struct Rank {
    RankInfo info;  // starting: away
    Descriptor process;  // a pidfd; none: it has no agent yet
    bool ended = false;  // the process has
    std::string how_ended;  // "was killed by SIGKILL"
    int end_signal = 0;
    bool left_alone = false;  // the user has given it up: it is not asked again
    std::optional<EventLoop::Timer> burial;
  };
  /// Asks ranks to come that can be asked since the last look.
  void look_for_ranks();
  void watch_folders();
  void watch_process(int rank, int64_t pid);
  /// Asks the rank to connect, now or at its next stop. Returns whether it has stopped.
  bool invite(int rank);
  void receive();
  bool receive_one();
  void handle(FromWorker& from);
  void look_at_connections();
  void connection_ended(int rank);
  /// Buries the rank in a moment; one whose process is ending, when it has ended.
  void await_death(int rank);
  void process_ended(int rank);
  /// Asked as soon as the process has ended, before its parent asks.
  SeenEnd end_of(int rank) const;
  void bury(int rank);
  void arrived(int rank);
  Rank& at(int rank) { return ranks_.at(static_cast<size_t>(rank)); }

  EventLoop& loop_;
  Job job_;
  SessionDirectory& directory_;
  Listener listener_;
  Descriptor new_files_;  // inotify, on the job's folders
  std::unique_ptr<Hub> hub_;
  std::vector<Rank> ranks_;
  RankSet expected_;  // have stopped and not connected yet
  RankSet resumed_;  // let go, and their connections have not ended yet
  RankSet arrivals_;  // not announced yet
  std::optional<EventLoop::Timer> announcement_;
  std::string start_error_;
  std::string prelude_;  // empty: no C++ cell has run
  bool starting_ = true;
  bool ending_ = false;
};

}  // namespace lockstep::shell
