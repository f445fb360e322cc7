// The log of a rank in a picture (picture.h), as a relay sends it from the rank's machine.
#pragma once
#include <nlohmann/json.hpp>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// Returns what read_log() has filled in.
nlohmann::json log_json(const RankPicture& rank);

/// Fills in the same. Throws nlohmann::json::exception for what is no such log.
void take_log_json(RankPicture& rank, const nlohmann::json& log);

/// Turns the times of the log, of a clock that is so far ahead of CLOCK_MONOTONIC here, into those of the latter.
void move_times(RankPicture& rank, int64_t ahead_ns);

}  // namespace lockstep::inspect
