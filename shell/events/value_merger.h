// Merges values of ranks for front ends that draw a cell's result once: the k-th values of all ranks together, equal
// ones as one.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "shell/events/event.h"

namespace lockstep::shell {

class ValueMerger {
 public:
  /// `show` gets the k-th values of ranks, at least one, in the order of ranks.
  explicit ValueMerger(std::function<void(const std::vector<ValueEvent>& values)> show) : show_(std::move(show)) {}

  /// Sets the ranks of a session, which numbers its values from the beginning.
  void set_ranks(const RankSet& ranks);
  /// Shows what all ranks of the session have shown by now.
  void add(const ValueEvent& event);
  /// Shows what is held for ranks that have not shown as many values.
  void flush();
  bool holds_any() const { return !held_.empty(); }

 private:
  void show_until(int64_t number);

  const std::function<void(const std::vector<ValueEvent>&)> show_;
  RankSet all_;
  std::map<int, int64_t> next_;  // by rank: the number after its last value
  std::map<int64_t, std::vector<ValueEvent>> held_;  // by number
};

}  // namespace lockstep::shell
