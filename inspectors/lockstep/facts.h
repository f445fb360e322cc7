// The facts that ranks exchange about what they recorded.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "protocol/finding.h"

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

void to_json(nlohmann::json& json, const SelfFacts& facts);
void from_json(const nlohmann::json& json, SelfFacts& facts);
void to_json(nlohmann::json& json, const RunFacts& facts);
void from_json(const nlohmann::json& json, RunFacts& facts);

}  // namespace lockstep::inspect
