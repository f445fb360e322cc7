#include "shell/jupyter/ran_cell.h"

#include <algorithm>
#include <exception>

#include "shell/text/text.h"

namespace lockstep::shell::jupyter {
namespace {

/// Returns `text` without the terminal's colours.
std::string without_escapes(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t escape = escape_length(text.substr(at));
    if (escape == 0) result += text[at];
    at += std::max<size_t>(1, escape);
  }
  return result;
}

}  // namespace

RanCell run_cell(Session& session, Display& display, const std::string& code, const Display::Wishes& wishes) {
  RanCell run;
  session.set_next_cell(wishes.execution_count);
  display.begin(wishes);
  CellStatus status = CellStatus::error;
  try {
    const CellOutcome outcome = session.run(code);
    status = outcome.status;
    run.leaves = outcome.exit_requested;
  } catch (const std::exception& error) {  // the ranks could not be started
    display.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "session_error", .message = error.what()});
  }
  run.report = display.end();
  run.failed = status != CellStatus::ok;
  if (run.failed) name_error(run.report, status);
  return run;
}

void name_error(Display::Report& report, CellStatus status) {
  auto& [name, value, traceback, page, result] = report;
  if (name.empty()) {
    name = status == CellStatus::waiting ? "hang" : std::string(to_string(status));
    if (status == CellStatus::waiting)
      value = "ranks wait for ranks that will not come: %hang shows them, %abort frees them";
    else
      value = traceback.empty() ? "" : without_escapes(traceback.front());
  }
  if (traceback.empty()) traceback.push_back(name + ": " + value);
}

bool asks_for_help(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.find('\n') != std::string_view::npos) return false;
  return text.back() == '?' || text.front() == '?' || text == "help" || text == "%help" || text == "%lsmagic" ||
         text.starts_with("%help ");
}

}  // namespace lockstep::shell::jupyter
