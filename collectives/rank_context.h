// The context of one rank holds its store, its log and its groups. A process has one; in a test each thread may be a
// rank, with a context of its own.
//
// Threads: start, new_group, regroup and close by the rank's own thread; abort and the questions by any.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "collectives/dist.h"
#include "collectives/replay/player.h"
#include "collectives/replay/recorder.h"
#include "collectives/start_claim.h"
#include "collectives/transport/store_connection.h"
#include "collectives/watch/watched_backend.h"
#include "collectives/watch/watched_group.h"

namespace lockstep::dist {

struct ContextOptions {
  int rank = 0;
  int world_size = 1;
  Store store;
  std::string backend = "gloo";
  std::chrono::milliseconds timeout = kDefaultTimeout;
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(1);
  std::string log_path;
  bool check_collectives = true;
  std::optional<bool> loopback =
      true;  // groups connect over the loopback interface; empty: the ranks compare where they are
  bool own_user_only = false;  // the store has to be a process of this user
  int64_t generation = 0;  // above 0: joins a session that is running, at its regroup of this generation
  bool of_session = false;  // the calls of cells are in the log; else those of a program, which are named by its lines
  RankSet members;  // ranks of the session that are the default group (set_default_ranks()); empty: all of them
  std::shared_ptr<Recorder> recorder = {};  // of what the rank receives; null: nothing is recorded
  std::shared_ptr<Player> player = {};  // stands for the other ranks in a replay; null: no replay
};

/// A group as users hold it, with the objects of dist:: that make it work.
struct GroupEntry {
  Group handle;
  c10::intrusive_ptr<WatchedBackend> backend;
  std::shared_ptr<WatchedGroup> group;
};

// A rank has one number in its session, by which logs, findings and the prompt call it: rank(), Identity::ranks. The
// functions of dist:: count in the default group. The two differ once the default group does not have all ranks.
class RankContext {
 public:
  /// Collective over all ranks: connects the default group. Throws Error naming the ranks that did not come.
  explicit RankContext(ContextOptions options);
  ~RankContext();
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  int rank() const { return options_.rank; }
  int world_size() const { return world_size_; }
  const std::string& backend() const { return backend_; }
  /// The session has so many ranks from now on, and groups that are made later have this backend. By the rank's own
  /// thread.
  void resize(int world_size, const std::string& backend);
  const std::shared_ptr<CollectiveLog>& log() const { return log_; }
  HangWatch& watch() const { return *watch_; }
  const Store& store() const { return options_.store; }
  /// Whether all ranks are on this machine.
  bool loopback() const { return loopback_; }
  /// Returns a connection to the store that is not connected yet, for waits that can be interrupted.
  std::shared_ptr<StoreConnection> new_store_connection() const;
  std::chrono::milliseconds connect_timeout() const { return options_.connect_timeout; }
  /// Returns the generation of the last regroup, and live_ranks() those that it connected. By the rank's own thread.
  int64_t generation() const { return generation_; }
  const RankSet& live_ranks() const { return live_ranks_; }
  /// Returns the other ranks, as they were at the last connect. By the rank's own thread.
  const std::map<int, Peer>& peers() const { return peers_; }
  /// Calls `listener` after abort() and rank_left(), on the thread that called these. One at a time; it must not wait
  /// for anything.
  void set_abort_listener(std::function<void()> listener);
  /// Returns why collectives of this rank are aborted, or nothing where they are not. From any thread.
  std::optional<std::string> abort_reason() const;
  /// The session reports that `rank` has left `cell` and will not come to an exchange there. From any thread.
  void rank_left(int64_t cell, int rank);
  /// Returns the ranks that have left the cell that this one is in. From any thread.
  RankSet left_ranks() const;

  /// Records what this rank receives from now on. Called before its first collective, by the rank's own thread.
  void record(std::shared_ptr<Recorder> recorder);
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  const std::shared_ptr<Player>& player() const { return options_.player; }

  /// Holds what inspectors attach to this rank: their own connections, whose type is not known here.
  std::shared_ptr<void>& attachment() { return attachment_; }

  /// An empty handle means the default group, and so does the handle of an earlier default group (set_default_ranks()).
  /// Throws ArgumentError for a group that this rank has not made.
  GroupEntry find(const Group& handle) const;
  /// Does the same, but returns nothing for a group that this rank has not made.
  std::optional<GroupEntry> look_up(const Group& handle) const;
  /// See session_group.h. From any thread.
  std::vector<std::pair<std::string, int>> communicator_errors() const;
  /// Returns all groups that this rank has made.
  std::vector<GroupEntry> entries() const;
  int group_count() const { return static_cast<int>(entries().size()); }

  Group new_group(std::vector<int> ranks, std::chrono::milliseconds timeout, const std::string& backend,
                  uint64_t call_site);
  void destroy_group(const Group& handle);

  void abort(const std::string& reason);
  /// Returns how often abort() was called.
  int64_t abort_count() const;
  /// `aborts`: the count from which on an abort() ends the call; without it, that at the call.
  void regroup(int64_t generation, const RankSet& given, std::chrono::milliseconds timeout,
               std::optional<int64_t> aborts = std::nullopt);
  /// Begins cell `number` (as users count) on a rank that is recorded or replayed. A replay connects the groups anew
  /// where the recorded rank did. Throws Error as Player::begin_cell() does. By the rank's own thread.
  void begin_recorded_cell(int64_t number);
  bool needs_regroup() const;
  /// Makes these ranks of the session the default group, numbered in their order, from the next regroup() on. Local;
  /// this rank is one of them. Does nothing where they are the default group. By the rank's own thread.
  void set_default_ranks(const RankSet& ranks);
  /// Returns the numbers in the default group of ranks of the session; -1 for those that are not in it.
  std::vector<int> default_ranks_of(std::vector<int> ranks) const;
  int default_rank_of(int rank) const { return default_ranks_of({rank}).front(); }
  /// Returns the number in the session of a rank of the default group; -1 where there is none.
  int session_rank_of(int default_rank) const;
  /// Returns the number that goes into the name of the next group. By the rank's own thread.
  int next_group_number() const { return next_group_number_; }
  void set_next_group_number(int number) { next_group_number_ = number; }
  /// Throws for collectives on a device that an abort, a time limit or a peer's end has cut off since the last call. By
  /// the rank's own thread.
  void check_device_works() const;

 private:
  struct Rendezvous;
  /// One try of some ranks to connect groups.
  struct Attempt {
    std::string key;  // of the store, under which the ranks of this attempt meet
    RankSet ranks;
    std::chrono::milliseconds timeout{};
    int64_t generation = 0;
    int64_t abort_count = 0;  // as it was before: a later abort() ends the attempt
  };

  GroupEntry make_entry(WatchedGroup::Identity identity);
  GroupEntry make_default(const RankSet& ranks);
  void start(const GroupEntry& entry);
  void forget(const GroupEntry& entry);
  void call_abort_listener() const;

  // These are in connect_groups.cpp.
  /// Throws Aborted, and leaves the groups broken off, when abort() was called since the attempt began.
  void connect(const std::vector<GroupEntry>& groups, const Attempt& attempt);
  bool ranks_share_network(const std::string& key);
  c10::intrusive_ptr<c10d::Backend> recorded(c10::intrusive_ptr<c10d::Backend> transport,
                                             const WatchedGroup::Identity& group) const;
  void look_who_is_recorded(const std::map<int, nlohmann::json>& announcements);
  nlohmann::json announcement(const std::vector<GroupEntry>& groups) const;
  std::map<int, Peer> read_peers(const std::map<int, nlohmann::json>& announcements);
  void connect_group(const GroupEntry& entry, const std::map<int, nlohmann::json>& announcements,
                     const Attempt& attempt, const Store& store);

  const ContextOptions options_;  // of the start; world_size() and backend() are those of now
  std::atomic<int> world_size_;
  std::string backend_;
  const std::shared_ptr<CollectiveLog> log_;
  const std::shared_ptr<HangWatch> watch_;
  const std::shared_ptr<AbortFlag> abort_flag_ = std::make_shared<AbortFlag>();
  std::shared_ptr<Recorder> recorder_;
  RankSet recorded_;  // ranks of this machine that are recorded, as far as this one knows
  std::unique_ptr<StartClaim> claim_;  // none for a rank that joins a session
  bool loopback_ = true;
  int64_t generation_ = 0;
  int next_group_number_ = 1;
  RankSet live_ranks_;  // that took part in the last regroup

  std::map<int, Peer> peers_;

  mutable std::mutex mutex_;  // groups_, rendezvous_, abort_listener_, departures_
  std::function<void()> abort_listener_;
  std::map<int, int64_t> departures_;  // rank → the last cell that it left
  std::vector<GroupEntry> groups_;  // by creation; the default group first
  std::vector<c10::weak_intrusive_ptr<c10d::ProcessGroup>> former_defaults_;
  std::shared_ptr<void> attachment_;
  std::shared_ptr<StoreConnection> rendezvous_;  // while this rank waits in it for others
};

/// The world that a session gave this rank. init_process_group() joins it again after destroy_process_group().
struct SessionWorld {
  ContextOptions options;
  bool is_restored = false;  // a process that has taken the place of a lost rank has what that rank had
  int joins = 0;  // how often it was joined again: ranks meet where they have that number in common
  std::map<int64_t, std::pair<uint64_t, uint64_t>> code;  // cell → address and size, for the next group's log
};

/// Returns the calling thread's world, or else the process's; null outside sessions. By the rank's own thread.
std::shared_ptr<SessionWorld> session_world();
void set_session_world(std::shared_ptr<SessionWorld> world);
/// Makes the default group of the session's world; false outside sessions. Collective over all ranks, each of which has
/// called destroy_process_group() as often. Throws Error naming the ranks that did not come.
bool join_session_again(const InitOptions& options);

/// Returns the calling thread's rank if it has one of its own, else the process's; null where neither is initialised.
std::shared_ptr<RankContext> current_context();
/// Returns the same, or throws an Error that says to call init_process_group.
std::shared_ptr<RankContext> require_context(const char* function);
/// Returns the group that a handle means now: find() of the current context, also for handles that it does not know.
Group group_of_now(const Group& handle);
/// Returns the ranks of a group as the session numbers them. Throws ArgumentError as find() does.
std::vector<int> session_ranks(const Group& group);

/// Sets the thread's or the process's context. Throws Error when there is one and `context` is not null.
void set_current_context(std::shared_ptr<RankContext> context);

/// While it lives, the thread that made it is a rank of its own: init_process_group on it makes that thread's groups.
/// It is for several ranks in one process.
class ThreadRank {
 public:
  ThreadRank();
  ~ThreadRank();
  ThreadRank(const ThreadRank&) = delete;
  ThreadRank& operator=(const ThreadRank&) = delete;
};

}  // namespace lockstep::dist
