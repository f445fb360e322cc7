// Writes one rank's part of a timeline, in Chrome's "Trace Event Format": JSON objects with times in microseconds.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "inspectors/timing/timeline_facts.h"

namespace lockstep::inspect {

class TraceEvents {
 public:
  /// `offset_ns` is this rank's clock minus that of the timeline.
  TraceEvents(int rank, int64_t offset_ns);

  void add_cells();
  void add_collectives();  // of the collective log
  void add_device_collectives();  // by the device's clock, while operators were recorded; waits for the device
  void add_operators();  // of the thread's recording

  const TimelineCounts& counts() const { return counts_; }
  /// Returns the events, one in each line, separated by commas.
  const std::string& text() const { return text_; }

 private:
  double microseconds(int64_t ns) const { return static_cast<double>(ns - offset_ns_) * 1e-3; }
  void add(const nlohmann::json& event);
  void add_name(const char* what, int row, const std::string& name);
  void add_span(int row, const std::string& title, const char* category, int64_t begin_ns, int64_t end_ns);

  const int rank_;
  const int64_t offset_ns_;
  int64_t number_ = 0;  // of overlapping events
  TimelineCounts counts_;
  std::string text_;
};

}  // namespace lockstep::inspect
