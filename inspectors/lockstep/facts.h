// The facts that ranks exchange about what they recorded.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "protocol/finding.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

/// Holds the result of one rank's comparison of its own two runs.
struct SelfFacts {
  std::optional<Finding> finding;  // without ranks; its message begins after them
  int64_t collectives = 0;  // before the operator that the finding is about; the largest number without a finding
  int64_t operators = 0;  // of the first run
  int64_t left_out = 0;  // operators beyond max_operators
};

/// Lists collectives: the name of the group, and the number in it.
using CallList = std::vector<std::pair<std::string, int64_t>>;

/// Describes one run that is compared between ranks.
struct RunFacts {
  Hash digest{};  // of all compared operators; if it is equal on all ranks, sequences are not exchanged
  int64_t operators = 0, left_out = 0;
  int64_t backwards = 0;
  bool read_too_early = false;  // an operator read the result of a collective that was still running
  CallList may_overflow;  // reductions of integers that may have overflowed

  bool same_run(const RunFacts& other) const {
    return digest == other.digest && operators == other.operators && left_out == other.left_out;
  }
};

LOCKSTEP_JSON(SelfFacts, finding, collectives, operators, left_out)
LOCKSTEP_JSON(RunFacts, digest, operators, left_out, backwards, read_too_early, may_overflow)

}  // namespace lockstep::inspect
