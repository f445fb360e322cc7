// Exchanges what shows where the runs of ranks differ: the sequences of operators, and descriptions of the operators
// that findings name. Every rank has the same result.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/lockstep/divergence.h"
#include "inspectors/lockstep/facts.h"
#include "inspectors/lockstep/op_description.h"
#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

/// Says how the runs of the ranks relate.
enum class RunRelation {
  nothing_in_common,  // runs were cut short before the first common effect
  diverged,  // at Divergence::first_fault()
  ended_early,  // equal as far as they go, but some ranks ran fewer operators
  in_step
};

struct RunDetails {
  RunRelation relation = RunRelation::in_step;
  std::vector<OpSequence> sequences;  // by rank index, or a single one if all are equal
  Divergence divergence;
  std::map<size_t, OpDescriptions> ops;  // by position; then by rank index
  OpDescriptions not_run;  // of `ended_early`: the first operator that the ranks that ended did not run
  OpDescriptions read_too_early;  // the first operator that read the result of a running collective, where there is one
};

/// Collective; exchanges nothing if all runs are equal.
RunDetails exchange_details(Exchange& exchange, const Recording& run, const TensorNames& names,
                            const LockstepOptions& options, const std::vector<RunFacts>& facts);

/// Returns the positions of numbers that differ and that findings list: the first ones, without those that have a text
/// of their own. `more` is how many others there are.
std::vector<size_t> listed_numbers(const Divergence& divergence, size_t& more);

bool has_collective(const std::vector<OpSequence>& sequences);

}  // namespace lockstep::inspect
