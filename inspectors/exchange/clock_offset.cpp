#include "inspectors/exchange/clock_offset.h"

#include <algorithm>
#include <limits>

namespace lockstep::inspect {

ClockOffset clock_offset(const MeetingTimes& reference, const MeetingTimes& rank) {
  int64_t least = std::numeric_limits<int64_t>::min() / 2, most = std::numeric_limits<int64_t>::max() / 2;
  const size_t meetings = std::min(reference.came_ns.size(), rank.came_ns.size());
  if (meetings == 0) return {};
  for (size_t i = 0; i < meetings; ++i) {
    least = std::max(least, rank.came_ns[i] - reference.left_ns[i]);
    most = std::min(most, rank.left_ns[i] - reference.came_ns[i]);
  }
  return {.ns = least + (most - least) / 2, .error_ns = (most - least + 1) / 2};
}

}  // namespace lockstep::inspect
