// Makes the findings from the traces of all ranks. Pure: facts in, findings out.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/findings/about.h"
#include "protocol/finding.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

/// What ranks exchange about a traced step.
struct NanFacts {
  /// A finding about the first bad value that reached a result; without ranks, its message begins after them.
  std::optional<Finding> finding;
  bool made_here = false;  // not received from another rank
  int64_t operators = 0;  // that ran
  int64_t harmless = 0;  // of them, those that made bad values which reached no result
};

LOCKSTEP_JSON(NanFacts, finding, made_here, operators, harmless)

/// Equal findings of several ranks are one; an `ok` if no rank has any. `facts` are by rank index.
std::vector<Finding> nan_findings(const About& about, const std::vector<NanFacts>& facts);

}  // namespace lockstep::inspect
