// The facts that ranks exchange for a timeline.
#pragma once
#include <cstdint>
#include <string>

#include "protocol/json_fields.h"

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

LOCKSTEP_JSON(TimelineFacts, machine)
LOCKSTEP_JSON(TimelineCounts, cells, operators, collectives, buckets, left_out, clock_error_ns)

}  // namespace lockstep::inspect
