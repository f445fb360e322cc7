// How far apart the clocks of two ranks are, from barriers that neither can leave before both have entered.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep::inspect {

/// When a rank entered each barrier and when it left, by its own clock.
struct BarrierTimes {
  std::vector<int64_t> entered_ns, left_ns;
};

struct ClockOffset {
  int64_t ns = 0;  // subtracted from the rank's times it gives the reference's
  int64_t error_ns = 0;  // the true offset differs by at most this
};

/// Each barrier bounds the offset from both sides, since no rank leaves before the other has entered. The bounds of all
/// barriers leave an interval, and the result is its middle. Local.
ClockOffset clock_offset(const BarrierTimes& reference, const BarrierTimes& rank);

}  // namespace lockstep::inspect
