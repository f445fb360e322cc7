// An inspection returns a report: findings, which are the same on every rank. They go to a sink as well.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <vector>

#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct Report {
  std::vector<Finding> findings;
  int64_t tensors = 0;  // that were compared
  int64_t bytes = 0;    // of memory that was compared, on this rank
  double seconds = 0;   // on this rank
  RankSet took_part;  // the ranks whose facts the findings come from; the lowest of them publishes

  /// Whether there is no fault. Notes do not count.
  bool ok() const;
  explicit operator bool() const { return ok(); }
};

/// Prints a line for each finding, and one for each tensor of it; nothing for a report without findings.
std::ostream& operator<<(std::ostream& out, const Report& report);

/// Sets the function that gets findings, besides the caller: in a session the worker passes them to the shell. Without
/// one, as in a plain program, those that are not ok are written to stderr. From any thread.
void set_finding_sink(std::function<void(const Finding&)> sink);
/// Whether a session shows findings; a printed report then leaves them out.
bool session_shows_findings();

/// Passes the findings to the sink, from the calling rank.
void publish(const Report& report);
/// Does the same if the caller is the lowest rank that took part; `choose` selects the findings (all without it).
void publish_from_reporting_rank(const Report& report, const std::function<bool(const Finding&)>& choose = {});
/// Serves as `choose`.
bool is_not_ok(const Finding& finding);

}  // namespace lockstep::inspect
