// A rank that always comes last: it gets there, but takes many times as long as the others between one collective and
// the next.
#pragma once
#include <optional>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

struct StragglerOptions {
  double times_longer = 2;  // than the median of the others
  int collectives = 20;  // at least so many, of one group and cell, that all of its ranks have left
  double often = 0.8;  // the share of those waited for in which it comes last
  double least_wait_s = 1e-3;  // shorter waits are no waits
};

/// A note that names the rank, or nothing. Times of ranks are compared: one machine.
std::optional<Finding> find_straggler(const HangPicture& picture, const StragglerOptions& options = {});

}  // namespace lockstep::inspect
