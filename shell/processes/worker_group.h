// The processes of a session that hold ranks, and the store: started together, watched, ended together.
//
// A rank is dead once its process has ended and all that it had sent has arrived; only then does the listener hear of
// it.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/worker_messages.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/last_output.h"
#include "shell/processes/launcher.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_plan.h"

namespace lockstep::shell {

class WorkerGroup : public RankGroup {
 public:
  /// Starts the store and all workers; returns at once. Throws StartError.
  WorkerGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options, SessionDirectory& directory,
              Listener listener);
  ~WorkerGroup() override;  // ends what is left, by force

  void wait_connected() override;
  void make_ready(const std::string& prelude, const Versions& compiler) override;
  void cancel_start(const std::string& why) override { start_error_ = why; }
  void shutdown() override;

  Hub& hub() override { return *hub_; }
  int world_size() const override { return static_cast<int>(ranks_.size()); }
  RankSet live() const override;
  bool has_store() const override { return !store_has_ended_; }
  const RankInfo& rank(int rank) const override { return ranks_.at(static_cast<size_t>(rank))->info; }
  void kill(int rank) override;
  nlohmann::json describe() const override;

 private:
  struct Rank {
    RankInfo info;
    std::unique_ptr<OutputTail> tail;
    std::unique_ptr<LastOutput> output;
    std::unique_ptr<Child> process;
    std::optional<ProcessEnd> end;  // the process has ended; messages may still be on their way
    std::optional<EventLoop::Timer> burial;  // then: when they are not waited for any more
    std::optional<protocol::CellError> last_words;
    std::string refusal;  // of NotReady
  };
  void start_store();
  /// In the environment of every process that ranks start.
  std::string mark_of_session() const { return "LOCKSTEP_SESSION_DIR=" + directory_.path(); }
  void start_rank(int rank, const SessionOptions& options);
  /// Messages of more ranks may wait: takes them all.
  void receive();
  void look_at_connections();
  bool receive_one();
  void handle(FromWorker& from);
  void process_ended(int rank);
  void bury(int rank);
  void serve_start(RankInfo::State wanted, const std::string& what);
  void compare_versions(const Versions& compiler) const;
  protocol::CellError obituary(const Rank& rank) const;

  EventLoop& loop_;
  SessionPlan plan_;
  const std::optional<Rehearsal> rehearsal_;
  SessionDirectory& directory_;
  Listener listener_;
  std::unique_ptr<Hub> hub_;
  Pipe lifeline_, keeper_line_;
  std::unique_ptr<OutputTail> store_tail_;
  std::unique_ptr<Child> store_;
  bool store_has_ended_ = false;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::string store_address_, store_key_;
  std::string start_error_;  // ends the start
  bool starting_ = true;
  bool ending_ = false;
  bool warned_of_unauthenticated_peer_ = false;
};

}  // namespace lockstep::shell
