// The facts that ranks exchange about a traced step.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "protocol/finding.h"

namespace lockstep::inspect {

struct NanFacts {
  /// A finding about the first bad value that reached a result; without ranks, its message begins after them.
  std::optional<Finding> finding;
  bool made_here = false;  // not received from another rank
  int64_t operators = 0;  // that ran
  int64_t harmless = 0;  // of them, those that made bad values which reached no result
};

void to_json(nlohmann::json& json, const NanFacts& facts);
void from_json(const nlohmann::json& json, NanFacts& facts);

}  // namespace lockstep::inspect
