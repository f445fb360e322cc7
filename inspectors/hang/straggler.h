// Finds a rank that is nearly always the last one to enter a collective, since it takes much longer than the others
// between collectives.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// When the ranks of a group were in the collectives that all of them have completed.
struct GroupTimes {
  struct Stay {
    int64_t entered_ns = 0, done_ns = 0;  // of one clock for all ranks
  };
  std::string name;
  std::map<int, std::map<int64_t, Stay>> stays;  // rank → number of the collective → when
  FindingOp newest;  // the newest collective of one of them
};

struct StragglerOptions {
  double times_longer = 2;  // its time between collectives, relative to the median of the others
  int collectives = 20;  // the least number in one group and cell that all ranks of the group have completed
  double often = 0.8;  // the share of the collectives with a wait that it enters last
  double least_wait_s = 1e-3;  // shorter waits do not count
};

/// A note that names the rank of the first group that has one, or nothing.
std::optional<Finding> find_straggler(const std::vector<GroupTimes>& groups, const StragglerOptions& options = {});

/// Returns the times by the logs of a cell's ranks, which have to be on one machine. Groups without the log of a rank are left out.
std::vector<GroupTimes> times_of(const HangPicture& picture);

}  // namespace lockstep::inspect
