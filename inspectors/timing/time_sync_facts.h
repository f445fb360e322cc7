// The facts that ranks exchange about the step that they measured.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace lockstep::inspect {

/// Has the median and the quartiles, in seconds.
struct Spread {
  double median = 0, low = 0, high = 0;
};

struct StepTimes {
  int rank = 0;
  Spread synchronised, unsynchronised;
  /// Times of the step without synchronisation: before, during and after backward.
  double forward = 0, backward = 0, rest = 0;
};

struct TimeSyncFacts {
  StepTimes times;
  std::optional<Spread> reduction;  // the step's reductions without other work; unset if they are not known
};

void to_json(nlohmann::json& json, const TimeSyncFacts& facts);
void from_json(const nlohmann::json& json, TimeSyncFacts& facts);

}  // namespace lockstep::inspect
