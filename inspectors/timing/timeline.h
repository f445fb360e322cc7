// timeline: what every rank did and when, on one clock, as a file that Perfetto (ui.perfetto.dev) and chrome://tracing
// open: cells, operators (while they are recorded), collectives and the buckets of DistributedDataParallel.
//
//   auto recording = inspect::record_operators();
//   for (…) { …; }
//   inspect::timeline("step.json");             // on every rank; the lowest writes the file
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"

namespace lockstep::inspect {

/// Findings call the timeline by its file where no name is given.
struct TimelineOptions : InspectOptionsOf<TimelineOptions> {};

struct TimelineReport : Report {
  std::string path;
  int64_t cells = 0, operators = 0, collectives = 0, buckets = 0;  // of all ranks
  int64_t left_out = 0;  // operators beyond what a recording holds
  double clock_error = 0;  // seconds by which events of different ranks may be out of place; 0 on one machine
};

std::ostream& operator<<(std::ostream& out, const TimelineReport& report);

/// Collective over the options' ranks, over the inspectors' own connections. The times of collectives are those of the
/// log, which holds the last 4,096; a collective without an end is left out. Throws dist::Error where the file can't be
/// written, on every rank.
TimelineReport timeline(const std::string& path, const TimelineOptions& options = {});

/// Records the operators of the thread that made it, and of the threads that run its backward, while it lives; the
/// recording stays for timeline() until the next one begins. At most 500,000 operators, then it counts what it leaves
/// out. One at a time for a thread: throws lockstep::Error for a second one.
class [[nodiscard]] OperatorRecording {
 public:
  OperatorRecording();
  ~OperatorRecording();
  OperatorRecording(OperatorRecording&& other) noexcept;
  OperatorRecording& operator=(OperatorRecording&&) = delete;

 private:
  std::optional<uint64_t> callback_;
};
inline OperatorRecording record_operators() { return {}; }
/// For a session, where no variable need hold it: records on this thread until it is turned off.
void set_operator_recording(bool on);

}  // namespace lockstep::inspect
