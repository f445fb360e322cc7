// The ranks of a session, wherever their processes run. What is the same for all of them is here: the messages of the
// ranks, their states, and what follows the end of a process or of a connection. Where the processes come from, and who
// may end them, is a class for each kind: ranks that the session starts (worker_group.h), and ranks of a Python job that
// it has been attached to (shell/jobs/job_group.h).
//
//   starting ─→ connected ─→ ready ─→ leaving       dead from anywhere
//       ↑           └──────────┴─────────┘          back to starting: the connection has ended, and the process runs on
//
// A rank is dead once its process has ended and all that it had sent has arrived; only then does the listener hear of
// it.
#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/hang/picture.h"
#include "protocol/rank_set.h"
#include "protocol/version.h"
#include "protocol/worker_messages.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/hub.h"
#include "shell/processes/rank_place.h"

namespace lockstep::shell {

/// A rank as the session sees it.
struct RankInfo {
  enum class State { starting, connected, ready, leaving, dead };
  State state = State::starting;
  pid_t pid = 0;
  std::string host, device;
  protocol::Hello hello;
  int threads = 0;
};

class RankGroup {
 public:
  struct Listener {
    /// Takes anything but Hello, Ready, NotReady and Dying.
    std::function<void(FromWorker&)> message;
    /// Takes bytes that a rank wrote before its death and had not sent. Comes before died().
    std::function<void(int rank, Stream stream, std::string bytes)> last_output;
    /// Takes something that does not end the session.
    std::function<void(const std::string& text)> warning;
    /// A rank is gone; `error` says how in words, and where if the rank could still report that. Not called while the
    /// group starts or ends.
    std::function<void(int rank, const protocol::CellError& error)> died;
    /// A rank has ended as dismiss() asked it to.
    std::function<void(int rank)> left;
    /// The store's process has ended, `how` in words. Not called while the group starts or ends.
    std::function<void(const std::string& how)> store_ended;
    /// Ranks of one machine have made these calls, which none of them had made before. Of ranks that all run here
    /// nobody hears.
    std::function<void(const std::vector<dist::NewCall>&)> calls = {};
    /// The start can't succeed any more, for the reason that start_error() has.
    std::function<void()> start_failed = {};
  };

  virtual ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Serves until all that are to come have said hello. Throws StartError for one that did not, with its last words, or
  /// is of another version.
  virtual void wait_connected() = 0;
  /// Has all load the prelude, with which C++ cells can run; compares versions with the compiler's (rule 12). Throws
  /// StartError.
  virtual void make_ready(const std::string& prelude, const Versions& compiler) = 0;
  /// Ends the start that is being waited for, with this message; callbacks call it.
  void cancel_start(const std::string& why) { start_error_ = why; }
  /// Why the start can't succeed any more; empty where it can.
  const std::string& start_error() const { return start_error_; }
  /// Asks all to leave, and waits 2 s at most.
  void shutdown();

  Hub& hub() { return hub_; }
  int world_size() const { return static_cast<int>(ranks_.size()); }
  const RankInfo& rank(int rank) const { return at(rank).info; }
  /// Ranks that take cells.
  RankSet live() const;

  /// Whether new groups can be connected: the store's process runs.
  virtual bool has_store() const { return true; }
  /// Starts another process for a dead rank, which joins the groups at the regroup `generation`. Serves until it takes
  /// cells, or `interrupted` is true: then false. Throws StartError: the session can't start it, it is of another
  /// version, or it has ended, with its last words. Where it does not take cells, the caller has to kill what is there.
  virtual bool restart(int rank, int64_t generation, const std::function<bool()>& interrupted);
  /// The session has the ranks of `plan` from now on: its last ones are new, and dead until restart(). Throws UsageError.
  virtual void grow(const SessionPlan& plan);
  /// Returns the last plan by which it has grown; nothing: it has the ranks of its start.
  const std::optional<SessionPlan>& grown() const { return grown_; }
  /// Whether there is such a way for this rank.
  virtual bool can_restart(int) const { return false; }
  /// Whether there is for any.
  bool can_restart_any() const;
  /// Asks these ranks to leave, and waits 2 s for it; then it kills them, and waits 2 s more. Returns those that have not
  /// ended.
  RankSet dismiss(const RankSet& ranks);
  /// Kills the process of a rank that the session owns; died() follows. Leaves another one alone from now on.
  virtual void kill(int rank) = 0;
  /// Whether the session has started the processes, so that it may end them and connect them with one another.
  virtual bool owns_processes() const = 0;
  /// The processes that the session owns, for session.json.
  virtual nlohmann::json describe() const { return nlohmann::json::array(); }
  /// Returns where the ranks are, in words, if not all on this machine.
  virtual std::string places_text() const { return ""; }
  /// Whether all ranks run on one machine.
  bool share_machine() const;
  /// Fills in this part of the collective logs of these ranks.
  virtual void read_logs(const std::vector<inspect::RankPicture*>& ranks, const inspect::LogPart& part) const = 0;
  /// Returns how far CLOCK_MONOTONIC of the rank's machine is ahead of the one here.
  virtual int64_t clock_ahead_ns(int) const { return 0; }
  /// Sends an object of a cell, whose bytes are `bytes`, to ranks that are to load it.
  virtual void send_object(const RankSet& ranks, protocol::Load load, std::string bytes);
  /// Why a rank takes no cells: "is dead".
  virtual std::string absence(int) const { return "is dead"; }

 protected:
  using State = RankInfo::State;
  struct Rank {
    explicit Rank(EventLoop& loop) : burial(loop) {}
    RankInfo info;
    int pidfd = -1;  // watched; -1: no process is known, or it has ended
    std::optional<RankExit> end;  // the process has ended; messages may still be on their way
    Deadline burial;  // then: when they are not waited for any more
    std::array<int64_t, 2> received = {0, 0};  // bytes of its stdout and stderr
    std::optional<protocol::CellError> last_words;
  };

  /// Listens on `endpoint`. Throws StartError.
  RankGroup(EventLoop& loop, std::string endpoint, int world_size, Listener listener);

  Rank& at(int rank) { return ranks_.at(static_cast<size_t>(rank)); }
  const Rank& at(int rank) const { return ranks_.at(static_cast<size_t>(rank)); }
  /// The rank has this process from now on.
  void watch_process(int rank, pid_t pid, int pidfd);
  /// Serves until done() is true, or `limit` has passed; returns done(). Throws StartError, `failure` and the reason, once
  /// the start has failed.
  bool serve_start(const std::function<bool()>& done, EventLoop::Clock::duration limit, const char* failure);
  /// Asks live ones among `ranks` to leave. Does not wait.
  void let_go(const RankSet& ranks);
  /// The process of a rank may have ended: buries the rank when all that it had sent has arrived. Called by itself for a
  /// process that is watched.
  void process_ended(int rank);
  void bury(int rank);
  /// The start can't succeed any more. Only the first reason counts.
  void fail_start(const std::string& why) {
    if (!starting_ || !start_error_.empty()) return;
    start_error_ = why;
    if (listener_.start_failed) listener_.start_failed();
  }
  void store_has_ended(const std::string& how, const std::string& last_lines);

  EventLoop& loop_;
  const std::string endpoint_;
  const Listener listener_;
  Hub hub_;
  std::string start_error_;  // ends the start
  bool starting_ = true;
  bool ending_ = false;

 private:
  /// Returns how the process of a rank has ended; nothing where it runs. It is called once the process may have ended.
  virtual std::optional<RankExit> take_end(int rank) = 0;
  /// Returns what a rank wrote to stdout and stderr before its end, and had not sent when `received` bytes of each had arrived.
  virtual std::array<std::string, 2> take_last_output(int, const std::array<int64_t, 2>&) { return {}; }
  /// A rank was in the state `before`, and its connection or its process has ended.
  virtual void buried(int rank, State before) = 0;
  /// A rank sent what can't be read, for the reason `why`, so it can't be relied upon any more. The others go on.
  virtual void give_up(int rank, const std::string& why) = 0;
  /// A rank has become connected, or ready.
  virtual void came(int) {}
  /// The connection of a rank has ended, and its process runs.
  virtual void disconnected(int) {}
  virtual void begin_shutdown() {}

  void receive();
  /// False when no message waits.
  bool receive_one();
  void handle(FromWorker& from);
  void look_at_connections();

  std::deque<Rank> ranks_;
  std::optional<SessionPlan> grown_;
  bool warned_of_unauthenticated_peer_ = false;
};

}  // namespace lockstep::shell
