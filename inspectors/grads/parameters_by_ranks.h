// Parameters that share a finding because the same ranks are at fault.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "inspectors/grads/findings.h"

namespace lockstep::inspect {

struct GradsFindings::ParametersByRanks {
  std::map<std::vector<int>, std::vector<size_t>> by_ranks;
  void add(const RankSet& ranks, size_t parameter) { by_ranks[ranks.ranks()].push_back(parameter); }
};

}  // namespace lockstep::inspect
