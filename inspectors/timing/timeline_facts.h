// The facts that ranks exchange for a timeline.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::inspect {

/// These facts are exchanged first.
struct TimelineFacts {
  std::string machine;  // the same for ranks that share a clock
};

/// Counts one rank's share of the timeline, besides the events.
struct TimelineCounts {
  int64_t cells = 0, operators = 0, collectives = 0, buckets = 0;
  int64_t left_out = 0;  // operators
  int64_t clock_error_ns = 0;
};

void to_json(nlohmann::json& json, const TimelineFacts& facts);
void from_json(const nlohmann::json& json, TimelineFacts& facts);
void to_json(nlohmann::json& json, const TimelineCounts& counts);
void from_json(const nlohmann::json& json, TimelineCounts& counts);

}  // namespace lockstep::inspect
