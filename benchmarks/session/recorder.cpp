#include "benchmarks/session/recorder.h"

#include <chrono>
#include <stdexcept>

#include "benchmarks/session/measurement.h"

namespace lockstep::benchmark {

void Recorder::take(const shell::Event& event) {
  if (const auto* session = std::get_if<shell::SessionEvent>(&event)) {
    session_id = session->id;
  } else if (const auto* cell = std::get_if<shell::CellEvent>(&event)) {
    last_cell = *cell;
  } else if (const auto* value = std::get_if<shell::ValueEvent>(&event)) {
    last_value = value->text;
  } else if (const auto* output = std::get_if<shell::OutputEvent>(&event)) {
    output_bytes += static_cast<int64_t>(output->bytes.size() * output->ranks.size());
  } else if (const auto* error = std::get_if<shell::ErrorEvent>(&event)) {
    trouble += error->message + '\n';
  } else if (const auto* finding = std::get_if<shell::FindingEvent>(&event)) {
    trouble += finding->finding.message + '\n';
  }
}

CellTime run_cell(shell::Session& session, Recorder& recorder, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const auto outcome = session.run(text);
  const double total = milliseconds_since(start);
  if (outcome.status != CellStatus::ok)
    throw std::runtime_error(text + "\nended as " + std::string(to_string(outcome.status)) + ": " + recorder.trouble);
  return {total, recorder.last_cell.compile_ms};
}

}  // namespace lockstep::benchmark
