// Decides which ranks are right where ranks have different values: more than half of them, if they agree.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct Majority {
  RankSet at_fault;   // the other ranks; all of them without a majority
  RankSet reference;  // the ranks that are right; empty without a majority
};

/// Returns the ranks that have each value. `values` are by rank index.
template <typename Value>
std::map<Value, RankSet> ranks_by_value(const RankSet& ranks, const std::vector<Value>& values) {
  std::map<Value, RankSet> result;
  for (size_t i = 0; i < values.size(); ++i) result[values[i]].insert(ranks.ranks()[i]);
  return result;
}

/// `agreeing`: the largest part of `ranks` that agrees.
inline Majority majority_of(const RankSet& ranks, const RankSet& agreeing) {
  if (2 * agreeing.size() > ranks.size()) return {.at_fault = ranks - agreeing, .reference = agreeing};
  return {.at_fault = ranks, .reference = {}};
}

template <typename Value>
Majority majority_of(const RankSet& ranks, const std::map<Value, RankSet>& by_value) {
  RankSet largest;
  for (const auto& [value, agreeing] : by_value)
    if (agreeing.size() > largest.size()) largest = agreeing;
  return majority_of(ranks, largest);
}

template <typename Value>
Majority majority_of(const RankSet& ranks, const std::vector<Value>& values) {
  return majority_of(ranks, ranks_by_value(ranks, values));
}

}  // namespace lockstep::inspect
