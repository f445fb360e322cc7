// Finds where several runs of the same operators differ first: runs of several ranks, or two of one rank. Pure.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "inspectors/lockstep/op_sequence.h"

namespace lockstep::inspect {

/// Positions at which the runs differ: the first one of each kind.
struct Divergence {
  size_t common = 0;  // the number of positions at which all runs have the same operators
  std::optional<size_t> computation;  // equal inputs, different outputs
  std::optional<size_t> parameter;  // forward reads a parameter that differs
  std::optional<size_t> update;  // a parameter is equal before the operator and differs after it
  std::optional<size_t> order;  // different operators
  std::optional<size_t> input;  // different inputs
  std::optional<size_t> random;  // different random numbers, from generators in different states
  std::optional<size_t> outside;  // different input data
  std::vector<size_t> numbers;  // every position at which the program passed other numbers, texts or lists
  std::optional<size_t> divisor;  // a loss is divided by different numbers, and no later operator compensates for it

  /// Returns the first position that makes a fault.
  std::optional<size_t> first_fault() const;
};

/// How many effects (OpEntry::is_effect) the runs have in common, from the first one on.
struct CommonEffects {
  size_t count = 0;
  std::vector<bool> finished;  // by run: it has no further effects, and other runs have
  bool all = true;  // no run has further effects
};

CommonEffects common_effects(const std::vector<OpSequence>& runs);

Divergence find_divergence(const std::vector<OpSequence>& runs);

/// Returns by position whether outputs differ, of the first `common` ones.
std::vector<bool> outputs_that_differ(const std::vector<OpSequence>& runs, size_t common);

}  // namespace lockstep::inspect
