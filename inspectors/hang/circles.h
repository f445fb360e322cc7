// Calls whose ranks wait for one another, whoever says that they wait: logs or dumps. Pure.
#pragma once
#include <cstddef>
#include <vector>

#include "inspectors/findings/majority.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// The ranks that wait in a call, and those that they wait for.
struct CallWait {
  RankSet waiting, missing;
};

struct Circle {
  std::vector<size_t> calls;  // indices, by the lowest waiting rank
  size_t largest = 0;  // the index of the call in which most ranks wait
  RankSet ranks;  // all that wait in these calls
  Majority majority;  // those in the largest call are right if they are more than half
};

/// In a circle each call waits, directly or through others of the circle, for ranks that wait in each of the others; a
/// circle of one call waits for itself. A call that only leads to a circle is in none. By the lowest waiting rank.
std::vector<Circle> circles_of(const std::vector<CallWait>& waits);

}  // namespace lockstep::inspect
