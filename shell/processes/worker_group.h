// The ranks that a session starts, and the store: started together, watched, ended together.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/processes/launcher.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/store_process.h"

namespace lockstep::shell {

class WorkerGroup : public RankGroup {
 public:
  /// Starts the store and all workers; returns at once. Throws StartError.
  WorkerGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options, SessionDirectory& directory,
              Listener listener);
  ~WorkerGroup() override;  // ends what is left, by force

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  bool has_store() const override { return !store_->has_ended(); }
  void kill(int rank) override;
  bool owns_processes() const override { return true; }
  nlohmann::json describe() const override;

 private:
  /// The process that holds a rank.
  struct Process {
    std::unique_ptr<OutputTail> tail;
    std::unique_ptr<Child> child;
  };
  const Process& process(int rank) const { return processes_.at(static_cast<size_t>(rank)); }
  std::optional<End> take_end(int rank) override;
  void buried(int rank, State before) override;
  void give_up(int rank, const std::string& why) override;

  void start_rank(int rank, const SessionOptions& options);
  void stop_watching();
  void wait_until_all(State wanted, const std::string& what);
  void compare_versions(const Versions& compiler) const;
  std::string quoted_output(int rank) const;
  protocol::CellError obituary(int rank) const;

  SessionPlan plan_;
  const std::optional<Rehearsal> rehearsal_;
  SessionDirectory& directory_;
  Pipe lifeline_;
  std::unique_ptr<StoreProcess> store_;
  std::vector<Process> processes_;  // by rank
  std::string store_key_;
};

}  // namespace lockstep::shell
