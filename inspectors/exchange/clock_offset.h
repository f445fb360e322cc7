// Computes the offset between two ranks' clocks from barriers that neither can leave before both have entered.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep::inspect {

/// Times at which a rank entered and left each barrier, by its own clock.
struct BarrierTimes {
  std::vector<int64_t> entered_ns, left_ns;
};

struct ClockOffset {
  int64_t ns = 0;  // the rank's time minus the reference's
  int64_t error_ns = 0;  // the true offset differs by at most this
};

/// Each barrier bounds the offset from both sides, since no rank leaves before the other has entered. The result is the
/// middle of the interval that the bounds of all barriers leave. Local.
ClockOffset clock_offset(const BarrierTimes& reference, const BarrierTimes& rank);

}  // namespace lockstep::inspect
