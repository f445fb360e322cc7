// Ranks of a C++ session whose processes run on this machine, with the process of their store: started together,
// watched, ended together. A relay has one for the shell of another machine. The store and ranks on the CPU are copies of
// one process (rank_starter.h). These are started one by one: ranks on GPUs, since CUDA does not work in copies; ranks of a
// session on several places, since the other places would wait until the first one has loaded LibTorch.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "shell/processes/deaths.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"
#include "shell/processes/local_place.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/rank_starter.h"
#include "shell/processes/rehearsal.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/store_process.h"

namespace lockstep::shell {

class LocalRanks : public LocalPlace {
 public:
  /// `plan` is that of the ranks here. `address`: on which the store takes connections. `environment` is added to that
  /// of the ranks.
  LocalRanks(EventLoop& loop, SessionPlan plan, SessionDirectory& directory, std::string hub_endpoint,
             std::optional<Rehearsal> rehearsal, std::string address = kLoopback,
             std::map<std::string, std::string> environment = {});
  ~LocalRanks() override;  // ends what is left, by force

  int count() const override { return plan_.world_size; }
  void start(const StartRanks& order, Listener listener) override;
  bool has_store() const override { return store_ && !store_->has_ended(); }
  void kill(int rank) override;
  RankProcess restart(int rank, const std::string& identity, int64_t generation) override;
  bool can_restart() const override { return true; }
  void grow(const SessionPlan& plan) override;
  void end_soon() override { ending_ = true; }
  std::string last_lines(int rank) override;

 private:
  /// The process that holds a rank, and what it has written.
  struct Process {
    std::unique_ptr<OutputTail> tail;
    std::unique_ptr<LastOutput> output;
    std::unique_ptr<Child> child;
    bool is_unwanted = false;  // it was to be killed, perhaps before it was there
  };
  std::unique_ptr<LastOutput> release_output(int rank) override { return std::move(processes_.at(rank).output); }
  void read_log(inspect::RankPicture& rank, const inspect::LogPart& part) override;
  Launch launch() const;
  bool can_be_copies() const;
  /// Returns what the rank's process finds in its environment, besides its descriptors.
  std::map<std::string, std::string> environment(int rank, int64_t generation) const;
  /// Makes what the process of a rank writes to.
  void add_process(int rank);
  void make_starter();
  void starter_failed(const std::optional<ProcessEnd>& end);
  void order_copies();
  /// Orders a copy, which has_started() a little later.
  void order_copy(int rank, int64_t generation);
  void start_alone(int rank, int64_t generation);
  /// Starts all that have no process yet one by one.
  void start_others_alone();
  void has_started(int rank, std::unique_ptr<Child> child);
  void tell_started();
  void ended(int rank);
  std::string words_of(const ProcessEnd& end);
  void stop_watching();

  EventLoop& loop_;
  SessionPlan plan_;
  SessionDirectory& directory_;
  const std::string hub_endpoint_;
  const std::optional<Rehearsal> rehearsal_;
  const std::string address_;
  const std::map<std::string, std::string> environment_;
  StartRanks order_;
  Listener listener_;
  Pipe lifeline_;
  std::unique_ptr<StoreProcess> store_;
  std::unique_ptr<RankStarter> starter_;  // where the store and the ranks are copies
  std::map<int, Process> processes_;  // by rank
  bool are_started_ = false, ending_ = false;
  MemoryKillCounter memory_kills_;
};

}  // namespace lockstep::shell
