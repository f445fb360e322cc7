// The ranks of a session whose cells are Python. They are a Python job that the session starts itself: a process of the
// user's interpreter imports torch once, and the ranks are copies of it (python/lockstep/session/_start.py). From their
// start on they sit at the prompt.
//
// The ranks are no children of this process. How one has ended is read from the kernel while it is a zombie, and it
// stays one: its parent waits for none.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/jobs/job_group.h"
#include "shell/processes/last_output.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/store_process.h"

namespace lockstep::shell {

/// Returns the interpreter that --python means: `named` (a path, or a name in PATH), or where it is empty the first of
/// the environment that has torch. Asks them. Throws StartError where none has.
std::string find_interpreter(const std::string& named);

class PythonGroup : public JobGroup {
 public:
  /// Starts the store and the ranks; returns at once. Throws StartError.
  PythonGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options,
              std::unique_ptr<JobFolder> folder, SessionDirectory& directory, Listener listener);
  ~PythonGroup() override;  // ends what is left, by force

  void wait_connected() override;
  bool has_store() const override { return !store_->has_ended(); }
  void kill(int rank) override;
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override;
  std::string absence(int) const override { return "is dead"; }
  void read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const override;

  /// Returns the interpreter that runs.
  const std::string& interpreter() const { return interpreters_.at(candidate_); }

 private:
  std::optional<End> take_end(int rank) override;
  std::array<std::string, 2> take_last_output(int rank, const std::array<int64_t, 2>& received) override;
  void buried(int rank, State before) override;
  void give_up(int rank, const std::string& why) override;
  void came(int) override {}
  void disconnected(int rank) override;
  void begin_shutdown() override {}

  std::string ranks_of(const SessionPlan& plan, const SessionOptions& options);
  void start_interpreter();
  void interpreter_ended(const ProcessEnd& end);
  void read_report();
  void watch_tail(OutputTail& tail);
  std::string quoted(OutputTail& tail) const;
  LastOutput& output_of(int rank) { return *outputs_.at(static_cast<size_t>(rank)); }
  OutputTail& tail_of(int rank) { return *tails_.at(static_cast<size_t>(rank)); }

  const std::unique_ptr<JobFolder> folder_;
  std::unique_ptr<StoreProcess> store_;
  std::vector<std::string> interpreters_;  // in which torch is looked for, the first that has it
  size_t candidate_ = 0;
  std::string plan_file_;
  Pipe report_;  // "RANK PID" for each rank that has started
  std::string reported_;
  std::unique_ptr<OutputTail> tail_;  // of the process that starts the ranks
  std::vector<std::unique_ptr<OutputTail>> tails_;  // of the ranks, before their first cell
  std::vector<std::unique_ptr<LastOutput>> outputs_;  // of the ranks
  std::unique_ptr<Child> starter_;
};

}  // namespace lockstep::shell
