// What GradsFindings tells of together.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "inspectors/grads/findings.h"

namespace lockstep::inspect {

/// Parameters that are told of together: because the same ranks are at fault.
struct GradsFindings::Gathered {
  std::map<std::vector<int>, std::vector<size_t>> by_ranks;
  void add(const RankSet& ranks, size_t parameter) { by_ranks[ranks.ranks()].push_back(parameter); }
};

}  // namespace lockstep::inspect
