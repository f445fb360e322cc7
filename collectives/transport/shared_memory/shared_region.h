// The memory that the ranks of one group share, all of them on one machine: for each rank a slot of two halves for
// data, and counters of the rounds that it has come to. A round is one use of a half; the ranks of a group have the
// same rounds. A rank sleeps in the kernel until a counter of a peer has come to a round, or until that peer will never
// come.
//
// The memory has no name in any file system. Peers open it through /proc/PID/fd of the process that made it.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "collectives/log/collective_log_layout.h"
#include "protocol/descriptor.h"

namespace lockstep::dist {

/// A wait for a peer has ended without it: the peer is gone, the group was interrupted, or the time limit has passed.
class SharedMemoryError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class SharedRegion {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  static constexpr size_t kHalfBytes = size_t{256} << 10;
  static constexpr int kMostRanks = log_layout::kMostSharingRanks;

  /// Makes the memory of a group. Throws Error with the system's reason.
  static std::shared_ptr<SharedRegion> make(int rank, int size);
  /// Maps what the peer with this address has made. Throws Error with the reason.
  static std::shared_ptr<SharedRegion> open(const std::string& address, int rank, int size);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  /// Returns where peers open it until seal().
  std::string address() const;
  /// Every peer has mapped it: nobody else can from now on.
  void seal() { fd_.reset(); }

  /// From now on wait() says in `log` for whom it sleeps. Called once, before the first wait. `log` may be null.
  void tell(std::shared_ptr<log_layout::Group> log);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns the half of `rank` for `round`.
  std::byte* half(int rank, uint32_t round) const;
  /// What the ranks of a round compare: set before the round is posted as written.
  uint64_t& signature(int rank, uint32_t round) const;

  /// What counters count: `written`: the rank's half is filled; `done`: the rank has read what it needs of all others.
  enum class Stage { written, done };
  /// Sets the counter of this rank to `round`, and wakes the peers that wait for it.
  void post(Stage stage, uint32_t round);
  /// Returns when `peer` has posted `round`, which is of the collective `seq`, or a later one. Throws SharedMemoryError
  /// when it never will, and at the deadline.
  void wait(Stage stage, int peer, uint32_t round, int64_t seq, Deadline deadline) const;

  /// What `rank` has not posted by now never comes: it has left the group, or its process has died. From any thread.
  /// Does nothing in a process that was forked from the rank's.
  void end(int rank) noexcept;
  /// Does the same for all ranks of the group, in all their processes. From any thread.
  void end_all() noexcept;
  /// Makes waits of this rank throw that it has left, from now on; peers see no difference. From any thread.
  void end_own_waits() noexcept;
  /// Whether a rank of the group, this one or another, has ended. From any thread.
  bool any_ended() const noexcept;

 private:
  struct Layout;
  struct Counter;
  SharedRegion(Descriptor fd, int rank, int size);
  Counter& counter(Stage stage, int rank) const;
  void say_wait(int64_t before, int64_t now) const;

  Descriptor fd_;
  const int rank_, size_;
  const pid_t process_;
  Layout* layout_ = nullptr;
  uint32_t posted_[2] = {};  // by stage: this rank's
  std::atomic<bool> waits_end_ = false;
  std::shared_ptr<log_layout::Group> log_;
};

}  // namespace lockstep::dist
