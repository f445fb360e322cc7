// Names the cause of a value that differs from the reference, where only one cause shows the pattern of the difference.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "inspectors/compare/values.h"

namespace lockstep::inspect::compare {

/// The first value that differs.
struct Wrong {
  const PieceKey& key;
  const std::vector<JudgedValue>& values;  // of all ranks
  std::vector<const JudgedValue*> differing;
  const ReferenceValue& reference;
  const Layout& layout;
  double tolerance = 0;
  std::string type;  // of the module
  bool is_all_before_compared = false;  // all values before it, on all ranks
  bool is_update_compared = false;  // of a parameter: its gradient, and its value before the step
};

struct Cause {
  std::optional<double> factor;  // all differing values are the reference's times this
  std::string words;  // a sentence without a full stop; empty: no single cause shows this pattern
  bool is_meant = false;  // the layouts train differently by definition
};

Cause cause_of(const Wrong& wrong);

}  // namespace lockstep::inspect::compare
