// Findings that inspectors publish (from whatever thread they run on) wait here until Python takes them; a report is
// turned into JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "inspectors/exchange/report.h"

namespace lockstep::python {

/// While it lives, findings without a place of their own are placed at `where`: the line of the program that called.
class CurrentCall {
 public:
  explicit CurrentCall(std::string where);
  ~CurrentCall();
  CurrentCall(const CurrentCall&) = delete;
  CurrentCall& operator=(const CurrentCall&) = delete;

 private:
  std::string before_;
};

/// Keeps published findings from here on.
void collect_findings();
/// Returns the findings that were published since the last call, oldest first.
nlohmann::json take_findings();

/// Returns what all reports have. `table` is what people see besides the findings.
nlohmann::json report_json(const inspect::Report& report, std::string table = "");

/// Returns the table of a report that has one.
template <typename Report>
std::string table_of(const Report& report) {
  std::ostringstream text;
  text << report;  // without the findings, since there is a sink
  return text.str();
}

/// Draws findings as a session does.
std::string draw(const nlohmann::json& findings, bool colour, bool unicode, int width);

}  // namespace lockstep::python
