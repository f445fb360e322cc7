// Reductions of integers that ran over, proven from what all ranks saw of them: what they brought does not add up to
// what came out, and the difference is a multiple of what the type wraps around at.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/lockstep/lockstep.h"
#include "inspectors/trace/integer_reductions.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

struct RunFacts;  // lockstep/facts.h

/// Groups and numbers of collectives.
using CalledBy = std::vector<std::pair<std::string, int64_t>>;

/// Those of this rank in which an element is so large that a sum over its group could run over. Local; the first 64.
CalledBy calls_that_may_run_over(const std::vector<IntegerReduction>& mine);

/// `facts`: of every rank by rank index, with the above in may_run_over. Collective; exchanges nothing where no call is
/// among them.
std::vector<Finding> reductions_that_ran_over(Exchange& exchange, const std::vector<IntegerReduction>& mine,
                                              const std::vector<RunFacts>& facts, const LockstepOptions& options);

}  // namespace lockstep::inspect
