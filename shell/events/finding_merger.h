// Merges equal findings that several ranks make, each about itself alone, into one finding with their rank set. Pure:
// no clock, no socket; times come in as arguments.
//
// Such a finding ("on rank 1 fc1.weight became NaN in step 3") is held until every rank that may find the same has
// found it or has left the cell, and for kHold at most, because a rank may be stuck. All other findings are emitted at
// once.
#pragma once
#include <chrono>
#include <functional>
#include <list>
#include <optional>

#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::shell {

class FindingMerger {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kHold{2000};

  explicit FindingMerger(std::function<void(Finding)> emit);

  /// Notes that `from` has found it (-1: the session); `may_follow` are the ranks that may find something yet.
  void add(Finding finding, int from, const RankSet& may_follow, Clock::time_point now);
  /// Notes that `rank` finds nothing more: findings of others are not held for it.
  void left(int rank);

  /// Returns when due() has something to do; nothing while nothing is held.
  std::optional<Clock::time_point> deadline() const;
  /// Emits what has been held long enough.
  void due(Clock::time_point now);
  /// Emits all.
  void flush();

 private:
  struct Held {
    Finding finding;
    RankSet awaited;
    Clock::time_point since;
  };
  void emit(std::list<Held>::iterator held);

  std::function<void(Finding)> emit_;
  std::list<Held> held_;  // oldest first
};

}  // namespace lockstep::shell
