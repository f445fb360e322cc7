#include "shell/reports/junit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "protocol/error.h"
#include "shell/text/text.h"
#include "shell/text/xml_text.h"

namespace lockstep::shell {
namespace {

std::string first_line_of(std::string_view text) {
  for (const std::string_view line : lines_of(text))
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return std::string(line);
  return "";
}

}  // namespace

JunitReport::JunitReport(const std::string& path) : path_(path) {
  if (!std::ofstream(path_, std::ios::app))
    throw UsageError("--junit " + path_ + " can't be written: " + std::strerror(errno));
}

void JunitReport::begin_script(const std::string& name) { suites_.push_back({.name = name, .cases = {}}); }

JunitReport::Case JunitReport::new_case(const ScriptCell& cell) const {
  Case result;
  result.name = cell.title.empty() ? first_line_of(cell.text) : cell.title;
  result.line = cell.line;
  // Build servers join the cases of one name.
  const std::vector<Case>& cases = suites_.back().cases;
  const std::string name = result.name;
  for (int number = 2;
       std::any_of(cases.begin(), cases.end(), [&](const Case& each) { return each.name == result.name; }); ++number)
    result.name = fmt::format("{} ({})", name, number);
  return result;
}

void JunitReport::begin_cell(const ScriptCell& cell) {
  text_.finish();  // what came between cells
  first_problem_.clear();
  began_ = std::chrono::steady_clock::now();
  suites_.back().cases.push_back(new_case(cell));
}

void JunitReport::take(const Event& event) {
  text_.take(event);
  const auto* error = std::get_if<ErrorEvent>(&event);
  const auto* finding = std::get_if<FindingEvent>(&event);
  // The cause comes after its consequences.
  if (error && error->root_cause)
    first_problem_ = (error->ranks.empty() ? "" : error->ranks.words() + ": ") + error->type + ": " + error->message;
  if (finding && finding->finding.severity == Severity::fault && first_problem_.empty())
    first_problem_ = fmt::format("{}:{}: {}", finding->finding.inspector, to_string(finding->finding.verdict),
                                 finding->finding.message);
}

void JunitReport::end_cell(const CellOutcome& outcome, const CellJudgement& judgement) {
  Case& at = suites_.back().cases.back();
  at.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  at.output = text_.finish();
  if (!judgement.failed && judgement.faults == 0) return;
  at.result = Result::failed;
  at.type = judgement.failed && outcome.status != CellStatus::ok ? std::string(to_string(outcome.status))
            : judgement.complaints.empty()                       ? "finding"
                                                                 : "expectation";
  at.message = judgement.complaints.empty() ? first_problem_ : judgement.complaints.front();
  if (at.message.empty()) at.message = at.type;
}

void JunitReport::skip_cell(const ScriptCell& cell) {
  suites_.back().cases.push_back(new_case(cell));
  suites_.back().cases.back().result = Result::skipped;
  suites_.back().cases.back().message = "the run stopped at an earlier cell";
}

void JunitReport::fail_start(const std::string& message) {
  if (suites_.back().cases.empty()) suites_.back().cases.push_back({.name = "start of the session"});
  Case& at = suites_.back().cases.back();
  at.result = Result::error;
  at.type = "start_error";
  at.message = message;
}

bool JunitReport::write() const {
  const auto count = [](const Suite& suite, Result result) {
    return std::count_if(suite.cases.begin(), suite.cases.end(),
                         [&](const Case& each) { return each.result == result; });
  };
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"lockstep\">\n";
  for (const Suite& suite : suites_) {
    double seconds = 0;
    for (const Case& each : suite.cases) seconds += each.seconds;
    const std::string name = xml_text(suite.name);
    text += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n", name,
        suite.cases.size(), count(suite, Result::failed), count(suite, Result::error), count(suite, Result::skipped),
        seconds);
    for (const Case& each : suite.cases) {
      text += fmt::format("    <testcase classname=\"{}\" name=\"{}\" file=\"{}\"{} time=\"{:.3f}\"", name,
                          xml_text(each.name), name, each.line > 0 ? fmt::format(" line=\"{}\"", each.line) : "",
                          each.seconds);
      std::string inner;
      if (each.result == Result::failed || each.result == Result::error) {
        const char* const tag = each.result == Result::failed ? "failure" : "error";
        inner += fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, xml_text(each.type),
                             xml_text(first_line_of(each.message)), xml_text(each.message), tag);
      }
      if (each.result == Result::skipped)
        inner += fmt::format("      <skipped message=\"{}\"/>\n", xml_text(each.message));
      if (!each.output.empty()) inner += fmt::format("      <system-out>{}</system-out>\n", xml_text(each.output));
      text += inner.empty() ? "/>\n" : ">\n" + inner + "    </testcase>\n";
    }
    text += "  </testsuite>\n";
  }
  text += "</testsuites>\n";
  std::ofstream file(path_, std::ios::trunc | std::ios::binary);
  file << text;
  file.close();
  if (file) return true;
  std::fprintf(stderr, "lockstep: --junit %s can't be written: %s\n", path_.c_str(), std::strerror(errno));
  return false;
}

}  // namespace lockstep::shell
