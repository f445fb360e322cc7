// One process group of one rank: its place in the collective log, its connections, and what is done when ranks disagree
// or leave. The watched backend, the work it hands out and the context of the rank share it.
//
// Threads: enter() by one thread at a time (the backend's order mutex sees to it); interrupt(), break_off() and fail()
// by any.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/backend/backend.h"
#include "collectives/log/collective_log.h"
#include "collectives/log/peer.h"
#include "collectives/transport/backend_config.h"
#include "collectives/watch/device_spans.h"
#include "collectives/watch/device_works.h"
#include "collectives/watch/entered.h"
#include "collectives/watch/hang_watch.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

/// Keeps, for all groups of a rank, whether and why dist::abort was called.
struct AbortFlag {
  std::mutex mutex;
  std::string reason;
  int64_t count = 0;  // calls so far
  bool set = false;
};

inline constexpr const char* kRebuild =
    "Collectives of this group need dist::regroup first (a session does it before the next cell)";

struct PeerInGroup {
  Peer peer;
  int group_rank = 0;
  uint32_t slot = 0;  // of this group in the peer's log
};

class WatchedGroup : public std::enable_shared_from_this<WatchedGroup> {
 public:
  struct Identity {
    std::string name;
    int number = 0;  // in the order of creation, equal on all ranks
    std::vector<int> ranks;
    int group_rank = -1;
    BackendConfig backend;
    std::chrono::milliseconds timeout{};
    std::string advice = kRebuild;  // what to do about a group that is shut down: the end of its errors
  };

  WatchedGroup(Identity identity, std::shared_ptr<CollectiveLog> log, std::shared_ptr<HangWatch> watch,
               std::shared_ptr<AbortFlag> abort, bool check);
  ~WatchedGroup();

  const Identity& identity() const { return identity_; }
  bool member() const { return identity_.group_rank >= 0; }
  uint32_t slot() const { return slot_; }
  /// Returns the group in this rank's log; keeps the log.
  std::shared_ptr<log_layout::Group> in_log() const { return {log_, &slot_in_log()}; }
  int64_t seq() const { return slot_in_log().last_entered; }
  /// Returns a path at which any process of this user can read the log.
  std::string log_path() const { return log_->mapping().shared_path(); }
  bool live() const { return live_; }
  /// Whether the connections were interrupted since they were made.
  bool broken_off() const { return broken_off_; }
  /// Returns the generation of the regroup that made the connections.
  int64_t generation() const { return slot_in_log().generation; }
  /// Whether a member is lost: regroup leaves the group out until all are there.
  bool excluded() const { return excluded_; }
  void set_excluded(bool excluded);
  /// Returns the rank of the default group.
  int global_rank(int group_rank) const { return identity_.ranks.at(static_cast<size_t>(group_rank)); }

  /// Logs the collective and compares it with what the peers called. Throws when the group is unusable, and
  /// CollectiveMismatch.
  Entered enter(const EntryFields& fields);
  /// Does the same for send (`sends`) and recv (peer -1: from any rank), which are counted per peer and tag. The two
  /// sides of a message are compared, unless its receiver receives from any rank in this group: then nobody knows which
  /// two belong together.
  Entered enter_point_to_point(EntryFields fields, int peer_group_rank, bool sends);
  void finish(const Entered& entered, log_layout::EntryState state) { log_->finish(entered.entry, state); }
  /// Knows how far collectives with kOnDevice are.
  DeviceProgress& device_progress() const { return log_->device_progress(); }

  /// The transport threw `error` in that collective. Shuts this rank's side of the group, so that nobody waits for it,
  /// and throws what it means: Aborted, CollectiveMismatch, PeerLeft, TimedOut. Null: the transport reports success,
  /// but a write was lost. `own_limit`: the call does nothing but wait for peers, this long instead of the group's
  /// limit.
  [[noreturn]] void fail(const Entered& entered, const std::exception_ptr& error,
                         std::optional<std::chrono::milliseconds> own_limit = std::nullopt);

  /// Queues `work` on a device, to be logged as done when the device is done with it. An error of it breaks the group
  /// off.
  std::shared_ptr<DeviceOperation> track(std::vector<Entered> entered, const c10::intrusive_ptr<c10d::Work>& work) {
    return device_works_->add(std::move(entered), work);
  }
  /// Logs what devices have done by now. Throws as fail() does for the oldest operation that was cut off or has failed
  /// on a device since the last call: what it was to write means nothing. By the rank's own thread.
  void check_device_works();
  /// Throws for an operation whose end is neither pending nor done.
  [[noreturn]] void fail(const DeviceOperation& operation);

  /// Whether an operation that the transport reports as done may never have reached a peer; then fail() throws why.
  bool lost_writes() const;

  /// Shuts the connections; the group is unusable until it is connected again. `only`: nothing happens where the group
  /// has other connections by now.
  void break_off(log_layout::BreakCause cause, const std::string& message,
                 const BackendConnector* only = nullptr) noexcept;

  /// Throws CollectiveMismatch for number `seq`, where this rank or another saw one, and shuts the connections down. A
  /// negative number is that of the send or recv in which a rank saw one.
  [[noreturn]] void raise_mismatch(int64_t seq);
  /// Does the same where any rank has seen a mismatch; for calls that do not wait in this group's connections.
  void throw_if_mismatched();
  /// The hook is called before a mismatch at number `seq` is thrown; `calls` has the numbers that ranks are at by now.
  /// It is set before the group is used.
  using MismatchHook = std::function<void(int64_t seq, const std::set<int64_t>& calls)>;
  void set_mismatch_hook(MismatchHook hook) { mismatch_hook_ = std::move(hook); }

  /// Whoever compares the calls of ranks of different machines has found `mismatch` in the connections `incarnation`:
  /// this rank throws it in its next collective. After `patience` the connections are shut down, so that a rank that
  /// waits in a collective throws it there. Without liblockstep_interpose Gloo may forget a message that is written at
  /// that moment, and waits for it; so ranks get a moment to leave by themselves. Returns false where the group has
  /// other connections by now.
  bool tell_of_mismatch(uint64_t incarnation, const CollectiveMismatch& mismatch,
                        std::chrono::milliseconds patience) noexcept;

  /// Closes for good: the waits of peers throw that this rank has closed the group.
  void close() noexcept;

  /// Takes a new generation of connections in place of the old one. Sequence numbers continue after `seq`.
  void prepare(std::shared_ptr<BackendConnector> connector);
  /// `incarnation`: that of the log; 0: ranks of other machines can't tell this rank of a mismatch.
  void connected(std::vector<PeerInGroup> peers, int64_t seq, int64_t generation, uint64_t incarnation = 0);
  std::shared_ptr<BackendConnector> connector() const;

  /// Knows when its collectives ran on a device, while that is recorded.
  DeviceSpans& device_spans() { return device_spans_; }

 private:
  log_layout::Group& slot_in_log() const { return log_->mapping().group(slot_); }
  [[noreturn]] void throw_unusable();
  void throw_if_told();
  std::string told_words(const CollectiveMismatch& mismatch) const;
  void publish(const Entered& entered, uint64_t signature);
  bool agrees(const PeerInGroup& peer, const Entered& entered, uint64_t signature) const;
  bool splits_agree(const PeerInGroup& peer, const Entered& entered, uint64_t peer_entry) const;
  std::optional<uint64_t> entry_of_peer(const PeerInGroup& peer, int64_t seq) const;
  void publish_message(uint64_t entry);
  bool message_agrees(uint64_t entry, int peer_group_rank) const;
  /// Returns the entry of the other side of the message `own`, which rank `from` of the default group has entered, in
  /// the log of the rank that has the group in `slot`.
  std::optional<uint64_t> other_side(const log_layout::Entry& own, int from, const LogMapping& log,
                                     uint32_t slot) const;
  [[noreturn]] void raise_message_mismatch();
  [[noreturn]] void throw_mismatch(const CollectiveMismatch& mismatch, int64_t seq);
  void wait_for_arrivals(int64_t seq) const;
  int64_t mismatch_seen_by_anyone() const;
  std::set<int64_t> where_ranks_are() const;
  [[noreturn]] void throw_peer_left(const std::string& what);
  /// The ranks that will not go on with the group, by what their logs and processes say now.
  struct Departures {
    RankSet dead, aborted, closed, failed;
    std::string reason;  // of those that aborted
    /// Returns the ranks to name, and why they left; none where nothing is known.
    std::pair<RankSet, std::string> cause() const;
  };
  Departures departures(const std::vector<PeerInGroup>& peers) const;
  /// The connector `of` reports it.
  void connection_ended(const BackendConnector* of);
  /// Returns false where the peer's log is not known.
  bool has_entered(const PeerInGroup& peer, int64_t seq) const;
  bool is_aborted() const;
  /// Waits for the collectives of this rank that have not ended, also those that the program never waited for. Returns
  /// whether one does not end, or the rank was aborted meanwhile.
  bool has_stuck_collective();
  void device_ended(const DeviceOperation& operation, DeviceEnd end);

  const Identity identity_;
  const std::shared_ptr<CollectiveLog> log_;
  const std::shared_ptr<HangWatch> watch_;
  const std::shared_ptr<AbortFlag> abort_;
  const bool check_;
  const uint32_t slot_;
  int64_t generation_ = 0;
  // (peer, sends, tag; none: on a device) → messages; under the backend's order mutex.
  std::map<std::tuple<int, bool, std::optional<int>>, int64_t> tag_counts_;
  // Does not contain this rank. The rank's own thread changes it between generations only; others read it under mutex_.
  std::vector<PeerInGroup> peers_;
  std::atomic<bool> live_ = false, excluded_ = false, broken_off_ = false;
  std::atomic<bool> is_told_ = false;  // told_ is set
  std::atomic<bool> device_failed_ = false;  // an operation of this rank has, and broke the group off
  mutable std::mutex mutex_;  // connector_, message_, incarnation_, told_
  std::shared_ptr<BackendConnector> connector_;
  std::string message_;  // why it is unusable
  uint64_t incarnation_ = 0;  // of the connections; 0: there are none, or it is not known
  std::optional<CollectiveMismatch> told_;  // over the present connections
  std::condition_variable told_changed_;
  MismatchHook mismatch_hook_;
  DeviceSpans device_spans_;
  std::shared_ptr<DeviceWorks> device_works_;
};

/// Tells the group of this process that has the connections `incarnation`. Returns false where there is none.
bool tell_of_mismatch(uint64_t incarnation, const CollectiveMismatch& mismatch,
                      std::chrono::milliseconds patience) noexcept;

}  // namespace lockstep::dist
