#include "inspectors/exchange/clock_offset.h"

#include <algorithm>
#include <limits>

namespace lockstep::inspect {

ClockOffset clock_offset(const BarrierTimes& reference, const BarrierTimes& rank) {
  int64_t least = std::numeric_limits<int64_t>::min() / 2, most = std::numeric_limits<int64_t>::max() / 2;
  const size_t barriers = std::min(reference.entered_ns.size(), rank.entered_ns.size());
  if (barriers == 0) return {};
  for (size_t i = 0; i < barriers; ++i) {
    least = std::max(least, rank.entered_ns[i] - reference.left_ns[i]);
    most = std::min(most, rank.left_ns[i] - reference.entered_ns[i]);
  }
  return {.ns = least + (most - least) / 2, .error_ns = (most - least + 1) / 2};
}

}  // namespace lockstep::inspect
