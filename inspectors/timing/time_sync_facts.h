// What one rank tells the others of the step that it timed.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace lockstep::inspect {

/// Seconds: the middle one, and the quartiles.
struct Spread {
  double median = 0, low = 0, high = 0;
};

struct StepTimes {
  int rank = 0;
  Spread synchronised, unsynchronised;
  /// Of the step without synchronisation: until the first node of backward, from there to its last, and after it.
  double forward = 0, backward = 0, rest = 0;
};

struct TimeSyncFacts {
  StepTimes times;
  std::optional<Spread> reduction;  // of the step's reductions alone; unset where they are not known
};

void to_json(nlohmann::json& json, const TimeSyncFacts& facts);
void from_json(const nlohmann::json& json, TimeSyncFacts& facts);

}  // namespace lockstep::inspect
