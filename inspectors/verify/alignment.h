// Finds what saved replicas of different kinds have in common, so that a complete model can be compared with a state
// dict, a wrapper's state dict with its module's, and a checkpoint with the model in it.
#pragma once
#include <string>
#include <vector>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

struct Alignment {
  /// For each name that was changed, why: "the names in b.pt are compared without `module.`, which ...".
  std::vector<std::string> renamed;
  /// What the comparison leaves out: "12 values of b.pt".
  std::vector<std::string> left_out;
};

/// Changes `replicas` so that they have the same kinds of items under the same names, in the same order. Changes
/// nothing if they are of one kind already: then everything is compared. `names` are of the replicas, for the texts.
Alignment align(std::vector<SavedReplica>& replicas, const std::vector<std::string>& names);

}  // namespace lockstep::inspect
