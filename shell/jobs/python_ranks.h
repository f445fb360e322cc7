// Ranks of a Python session whose processes run on this machine. They are a Python job that is started here: a process of
// the user's interpreter imports torch once, and the ranks are copies of it (python/lockstep/session/_start.py), also
// those that are started again. A relay has one for the shell of another machine.
//
// The ranks are no children of this process. How one has ended is read from the kernel while it is a zombie, and it
// stays one: its parent waits for none.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/rank_set.h"
#include "shell/jobs/job_folder.h"
#include "shell/processes/deaths.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"
#include "shell/processes/local_place.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/store_process.h"

namespace lockstep::shell {

/// Returns the interpreter that --python means: `named` (a path, or a name in PATH), or where it is empty the first one
/// in PATH that has torch and the package lockstep. Starts the interpreters to ask them. Throws StartError where none
/// has them.
std::string find_interpreter(const std::string& named);

class PythonRanks : public LocalPlace {
 public:
  /// `plan` is that of the ranks here, which connect to the hub at `hub_path`. The store takes connections on
  /// `address`. `environment` is added to that of the ranks.
  PythonRanks(EventLoop& loop, SessionPlan plan, SessionDirectory& directory, std::string hub_path,
              std::string address = kLoopback, std::map<std::string, std::string> environment = {});
  ~PythonRanks() override;  // ends what is left, by force

  int count() const override { return plan_.world_size; }
  /// Returns before the ranks have started. The listener is told when torch has been imported and they have.
  void start(const StartRanks& order, Listener listener) override;
  bool has_store() const override { return store_ && !store_->has_ended(); }
  void kill(int rank) override;
  /// The rank reports its process when it connects.
  RankProcess restart(int rank, const std::string& identity, int64_t generation) override;
  /// Groups of other backends can't be connected again.
  bool can_restart() const override { return is_watched(); }
  void grow(const SessionPlan& plan) override;
  void end_soon() override { ending_ = true; }
  std::string last_lines(int rank) override;

  /// Returns the folder of the job of these ranks.
  const std::string& job_folder() const { return folder_.path(); }

 private:
  struct Process {
    pid_t pid = 0;
    Descriptor pidfd;
    bool has_ended = false;
    bool is_unwanted = false;  // killed before it was there
    std::unique_ptr<OutputTail> tail;  // before its first cell
    std::unique_ptr<LastOutput> output;
  };
  std::unique_ptr<LastOutput> release_output(int rank) override { return std::move(processes_.at(rank).output); }
  /// Whether the ranks have the backend `lockstep`, or one of PyTorch's own.
  bool is_watched() const { return order_.backend == "auto" || order_.backend == kSharedMemory; }
  void read_log(inspect::RankPicture& rank, const inspect::LogPart& part) override;
  RankSet ranks_here() const;
  nlohmann::json rank_json(int rank, int64_t generation) const;
  /// Returns what _start.py reads.
  std::string plan_of(const RankSet& ranks, int64_t generation, int orders) const;
  /// Starts a process that starts these ranks, and later others.
  void start_interpreter(const RankSet& ranks, int64_t generation);
  bool order_rank(int rank, int64_t generation);
  void interpreter_ended(const ProcessEnd& end);
  void read_report();
  void started(int rank, pid_t pid);
  void ended(int rank);
  void watch_tail(OutputTail& tail);
  const std::string& interpreter() const { return interpreters_.at(candidate_); }

  EventLoop& loop_;
  SessionPlan plan_;
  bool has_grown_ = false;
  SessionDirectory& directory_;
  const std::string hub_path_, address_;
  const std::map<std::string, std::string> environment_;
  StartRanks order_;
  Listener listener_;
  const JobFolder folder_{{"lockstep", "--python"}, /*is_session=*/true};
  std::unique_ptr<StoreProcess> store_;
  std::vector<std::string> interpreters_;  // the first that can be used is
  size_t candidate_ = 0;
  std::vector<int> ends_;  // exit codes of those before it
  Pipe report_;  // "RANK PID" for each rank that has started
  std::string reported_;
  std::unique_ptr<OutputTail> tail_;  // of the process that starts the ranks
  std::map<int, Process> processes_;  // by rank
  bool are_started_ = false, ending_ = false;
  MemoryKillCounter memory_kills_;
  std::unique_ptr<Child> starter_;
  Descriptor orders_;  // to it
};

}  // namespace lockstep::shell
