// What one rank tells the others of the step that it traced.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "protocol/finding.h"

namespace lockstep::inspect {

struct NanFacts {
  std::optional<Finding>
      finding;  // of the first bad value that reached a result, without ranks; its message begins after the ranks
  bool made_here = false;  // and not received from another rank
  int64_t operators = 0;  // that ran
  int64_t harmless = 0;  // of them made bad values that reached no result
};

void to_json(nlohmann::json& json, const NanFacts& facts);
void from_json(const nlohmann::json& json, NanFacts& facts);

}  // namespace lockstep::inspect
