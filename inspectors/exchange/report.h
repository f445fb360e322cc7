// What an inspection came to: findings, which every rank has alike, and where they go besides.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <vector>

#include "protocol/finding.h"

namespace lockstep::inspect {

struct Report {
  std::vector<Finding> findings;
  int64_t tensors = 0;  // that were compared
  int64_t bytes = 0;    // of memory that was compared, on this rank
  double seconds = 0;   // on this rank

  /// No fault. Notes do not count.
  bool ok() const;
  explicit operator bool() const { return ok(); }
};

/// A line for each finding, and one for each tensor of it.
std::ostream& operator<<(std::ostream& out, const Report& report);

/// The rank that publishes the findings of `ranks`: the lowest of those that took part.
int reporting_rank(const RankSet& ranks, const Report& report);

/// Where findings go besides to the caller: in a session the worker hands them to the shell. Called by the
/// reporting rank. None in a plain program unless it sets one. From any thread.
void set_finding_sink(std::function<void(const Finding&)> sink);
void publish(const Report& report);

}  // namespace lockstep::inspect
