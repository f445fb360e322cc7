// A rank that is nearly always the last one to enter a collective, since it takes much longer than the others between
// collectives.
#pragma once
#include <optional>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

struct StragglerOptions {
  double times_longer = 2;  // its time between collectives, relative to the median of the others
  int collectives = 20;  // the least number in one group and cell that all ranks of the group have completed
  double often = 0.8;  // the share of the collectives with a wait that it enters last
  double least_wait_s = 1e-3;  // shorter waits do not count
};

/// A note that names the rank, or nothing. Compares times of ranks, which have to be on one machine.
std::optional<Finding> find_straggler(const HangPicture& picture, const StragglerOptions& options = {});

}  // namespace lockstep::inspect
