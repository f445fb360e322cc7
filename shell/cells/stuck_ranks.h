// Finds where ranks that an interrupt has not brought back are, by asking their I/O threads for stacks.
//
// It lives on the session's thread. Nothing here waits: answers come back through reply().
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "shell/cells/cell_services.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class StuckRanks {
 public:
  explicit StuckRanks(const CellServices& services) : services_(services), limit_(services.loop) {}

  /// Asks `ranks`. Calls `then` when all that live have answered, or after a second.
  void ask(const RankSet& ranks, std::function<void()> then = {});
  /// Drops what was asked.
  void cancel();
  /// Takes an answer. Returns false where another class has asked the question.
  bool reply(int rank, const protocol::Reply& reply);
  /// Returns the stacks of `ranks`, as far as they have answered: lines that begin with a line break, equal stacks once.
  std::string words(const RankSet& ranks) const;

 private:
  void answered();

  const CellServices& services_;
  int64_t last_id_ = int64_t{1} << 62;  // those of RankQueries count from 0, those of HangReporter are negative
  RankSet asked_;
  std::map<int, std::string> stacks_;
  std::function<void()> then_;
  Deadline limit_;
};

}  // namespace lockstep::shell
