// The processes of a session that hold ranks, and the store: started together, watched, ended together.
//
// A rank is dead once its process has ended and all that it had sent has arrived; only then does the listener hear of
// it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/version.h"
#include "protocol/worker_messages.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/hub.h"
#include "shell/processes/last_output.h"
#include "shell/processes/launcher.h"
#include "shell/processes/output_tail.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_plan.h"

namespace lockstep::shell {

/// A rank as the session sees it.
struct RankInfo {
  enum class State { starting, connected, ready, dead };
  State state = State::starting;
  pid_t pid = 0;
  std::string host, device;
  protocol::Hello hello;
  int threads = 0;
};

class WorkerGroup {
 public:
  struct Listener {
    /// Anything but Hello, Ready, NotReady and Dying.
    std::function<void(FromWorker&)> message;
    /// Bytes that a rank wrote before its death and had not sent. Comes before died().
    std::function<void(int rank, Stream stream, std::string bytes)> last_output;
    /// Something that does not end the session.
    std::function<void(const std::string& text)> warning;
    /// A rank is gone; `error` says how in words, and where if the rank could still report that. Not called while the
    /// group starts or ends.
    std::function<void(int rank, const protocol::CellError& error)> died;
    /// The store's process has ended, `how` in words. Not called while the group starts or ends.
    std::function<void(const std::string& how)> store_ended;
  };

  /// Starts the store and all workers; returns at once. Throws StartError.
  WorkerGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options, SessionDirectory& directory,
              Listener listener);
  ~WorkerGroup();  // ends what is left, by force

  /// Serves until all have said hello. Throws StartError for one that did not, with its last words, or is of another
  /// version.
  void wait_connected();
  /// Compares versions with the compiler's (rule 12), has all load the prelude and serves until they are ready. Throws
  /// StartError.
  void make_ready(const std::string& prelude, const Versions& compiler);
  /// From a callback: ends the start that is being waited for, with this message.
  void cancel_start(const std::string& why) { start_error_ = why; }
  /// Asks all to end, waits 2 s at most, ends the rest by force.
  void shutdown();

  Hub& hub() { return *hub_; }
  int world_size() const { return static_cast<int>(ranks_.size()); }
  RankSet live() const;
  bool has_store() const { return !store_has_ended_; }
  const RankInfo& rank(int rank) const { return ranks_.at(static_cast<size_t>(rank))->info; }
  /// Kills the process of a rank; died() follows.
  void kill(int rank);
  /// Messages of more ranks may wait: takes them all.
  void receive();
  /// Of processes, for session.json.
  nlohmann::json describe() const;

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
