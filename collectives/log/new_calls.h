// Reads what a rank has called since the last look at its log, for whoever compares it with the calls of ranks that
// can't read this log.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "collectives/log/collective_record.h"

namespace lockstep::dist {

/// One collective that a rank has entered.
struct NewCall {
  uint64_t incarnation = 0;  // of its group
  int64_t seq = 0;
  uint64_t signature = 0;  // of what has to be alike on all ranks
};

class NewCalls {
 public:
  /// Opens the log at `path`. Throws Error.
  explicit NewCalls(const std::string& path) : log_(path) {}
  NewCalls(const NewCalls&) = delete;
  NewCalls& operator=(const NewCalls&) = delete;

  /// Returns what has come since the last call, in the order of the log. Messages, calls that the rank does not
  /// compare, those of groups without an incarnation, and what later entries have taken the place of, are left out.
  std::vector<NewCall> take();

  const CollectiveLogReader& log() const { return log_; }

 private:
  const CollectiveLogReader log_;
  uint64_t next_ = 0;
};

/// A call, and the newest calls of its rank.
struct FoundCall {
  CollectiveRecord call;
  uint64_t signature = 0;
  std::vector<CollectiveRecord> recent;
};

/// Returns the call with the number `seq` of the group with this incarnation, in the log of one of its ranks, and the
/// newest `recent` calls. Nothing where the rank has not come to it, or the log does not have it any more.
std::optional<FoundCall> find_call(const CollectiveLogReader& log, uint64_t incarnation, int64_t seq, size_t recent);

/// Returns the ranks of the group with this incarnation that the log names; none where the rank is not in it.
std::vector<int> ranks_of(const CollectiveLogReader& log, uint64_t incarnation);

/// Returns how many ranks that group has; 0 where the rank is not in it.
int size_of(const CollectiveLogReader& log, uint64_t incarnation);

}  // namespace lockstep::dist
