// Runs cells in a session and keeps what a measurement needs of its events: times, sizes, how many bytes were printed.
#pragma once
#include <cstdint>
#include <string>

#include "shell/events/event.h"
#include "shell/session/session.h"

namespace lockstep::benchmark {

/// Takes the events of a session. Cells are expected to succeed: `trouble` collects what says otherwise.
class Recorder : public shell::EventSink {
 public:
  void take(const shell::Event& event) override;

  std::string session_id;
  shell::CellEvent last_cell;
  std::string last_value;
  int64_t output_bytes = 0;  // of all ranks
  std::string trouble;
};

struct CellTime {
  double total_ms = 0;    // from the text to the end of the cell
  double compile_ms = 0;  // as the compiler says
};

/// Runs one cell. Throws std::runtime_error with what went wrong when it does not end as ok.
CellTime run_cell(shell::Session& session, Recorder& recorder, const std::string& text);

}  // namespace lockstep::benchmark
