// A collective that was entered has a number in the log and one in the group's sequence.
#pragma once
#include <cstdint>

namespace lockstep::dist {

struct Entered {
  uint64_t entry = 0;
  int64_t seq = 0;
};

}  // namespace lockstep::dist
