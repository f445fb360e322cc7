// Finds reductions of integers that overflowed. Sums prove it: the inputs of all ranks do not add up to the result, and
// the difference is a multiple of the range of the type.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/lockstep/facts.h"
#include "inspectors/trace/integer_reductions.h"
#include "protocol/finding.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

/// Holds what one rank knows of a reduction.
struct ReductionFacts {
  FindingOp op;
  RankSet group;  // its ranks; empty if the log does not name all of them
  std::string where;
  int64_t input_sum = 0;
  std::optional<int64_t> output_sum;
};

LOCKSTEP_JSON(ReductionFacts, op, group, where, input_sum, output_sum)

/// Returns the reductions of this rank in which an element is so large that the sum over the group may overflow; at
/// most 64. Local.
CallList calls_that_may_overflow(const std::vector<IntegerReduction>& reductions);

/// Returns the calls that some rank named, in the same order on every rank.
std::set<CallList::value_type> suspected_calls(const std::vector<RunFacts>& facts);

/// Returns what this rank knows of each of `calls`; nothing where it took no part. Local.
std::vector<std::optional<ReductionFacts>> reduction_facts(const std::vector<IntegerReduction>& reductions,
                                                           const std::set<CallList::value_type>& calls);

/// `seen` is by rank index, then by call. Pure.
std::vector<Finding> overflow_findings(const About& about,
                                       const std::vector<std::vector<std::optional<ReductionFacts>>>& seen);

}  // namespace lockstep::inspect
