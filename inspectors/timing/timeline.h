// timeline writes what all ranks did, on one clock, into a file for Perfetto (ui.perfetto.dev) and chrome://tracing:
// cells, operators (while they are recorded), collectives and the buckets of DistributedDataParallel.
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

#include "inspectors/exchange/report.h"

namespace lockstep::inspect {

/// The default name is that of the file.
struct TimelineOptions : InspectOptionsOf<TimelineOptions> {};

struct TimelineReport : Report {
  std::string path;
  int64_t cells = 0, operators = 0, collectives = 0, buckets = 0;  // of all ranks
  int64_t left_out = 0;  // operators beyond the limit of a recording
  double clock_error = 0;  // the largest possible error between times of different ranks, in seconds; 0 on one machine
};

std::ostream& operator<<(std::ostream& out, const TimelineReport& report);

/// Collective over the options' ranks, over the inspectors' own connections. Collectives are those of the log, which
/// has the last 4,096; those that have not ended are left out. Throws dist::Error on every rank if the file can't be
/// written.
TimelineReport timeline(const std::string& path, const TimelineOptions& options = {});

/// During its lifetime records when collectives ran on a device (two events for each), and the operators of the thread
/// that made it, and of the threads that run its backward. timeline() uses the recording until the next one begins.
/// Keeps at most 500,000 operators and counts the others. One at a time per thread: throws lockstep::Error for a second
/// one.
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
/// Records on this thread until it is turned off: for sessions, without a variable.
void set_operator_recording(bool on);

}  // namespace lockstep::inspect
