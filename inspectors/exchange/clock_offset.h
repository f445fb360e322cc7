// How far apart the clocks of two ranks are, from meetings that neither can leave before both have come.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep::inspect {

/// When a rank came to each meeting and when it left, by its own clock.
struct MeetingTimes {
  std::vector<int64_t> came_ns, left_ns;
};

struct ClockOffset {
  int64_t ns = 0;  // to be taken from the rank's times to have the reference's
  int64_t error_ns = 0;  // the true offset is no further away than this
};

/// Each meeting bounds the offset from both sides: nobody leaves before the other has come. What all meetings allow is an interval,
/// and the result is its middle. Local.
ClockOffset clock_offset(const MeetingTimes& reference, const MeetingTimes& rank);

}  // namespace lockstep::inspect
