// %%check NAME sets a check of an answer in a lesson, and a student runs it with %check NAME.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

std::vector<std::string> check_names(SessionCore& session) {
  std::vector<std::string> names;
  for (const auto& [name, code] : session.settings().checks) names.push_back(name);
  return names;
}

/// Returns whether the answer passes. A failure has been shown as an error of the cell.
bool run_check(MagicCall& call, const std::string& name) {
  const auto found = call.session.settings().checks.find(name);
  if (found == call.session.settings().checks.end())
    throw UsageError("there is no check '" + name + "'" + did_you_mean(name, check_names(call.session)) +
                     (call.session.settings().checks.empty() ? "; run the cell with %%check " + name + " first" : ""));
  // A block, so that its names are its own.
  const bool is_python = call.session.language() == Language::python;
  const CodeResult result =
      call.session.run_code(is_python ? found->second : "{\n" + found->second + "\n}", {.own_names = true}, call.line);
  const bool passed = result.status == CellStatus::ok;
  call.session.message(passed ? fmt::format("check {}: passed on {}", name, result.ranks.words())
                              : fmt::format("check {}: not yet", name),
                       nlohmann::json{{"check", name}, {"passed", passed}, {"ranks", result.ranks}});
  return passed;
}

CellOutcome check_line(MagicCall& call) {
  const std::vector<std::string>& names = call.given.words();
  if (names.empty()) {
    const std::vector<std::string> known = check_names(call.session);
    call.session.message(known.empty() ? "there is no check; a cell with %%check NAME sets one"
                                       : fmt::format("checks: {}", fmt::join(known, ", ")),
                         nlohmann::json{{"checks", known}});
    return {};
  }
  for (const std::string& name : names)
    if (!run_check(call, name)) break;
  return {};
}

void check_cell(MagicCall& call, CellSettings& settings) {
  if (call.body.find_first_not_of(" \t\r\n") == std::string::npos)
    throw UsageError(std::string("%%check needs the code of the check below it, such as ") +
                     (call.session.language() == Language::python ? "assert answer == 42, \"a hint\""
                                                                  : "TORCH_CHECK(answer == 42, \"a hint\");"));
  settings.run = [&session = call.session, name = *call.given.word(), code = call.body](const CellSettings&) {
    session.settings().checks[name] = code;
    session.message("%check " + name + " checks the answer", {{"check", name}});
  };
}

const RegisterMagic kCheck(
    {.name = "check",
     .summary = "checks an answer to an exercise; %%check NAME sets the check",
     .help =
         "%%check NAME keeps the code below it, and runs nothing. %check NAME runs it on the cell's ranks: an answer\n"
         "passes if nothing is thrown. TORCH_CHECK(condition, \"a hint\") throws with a hint for the student; at a\n"
         "prompt over a Python job, assert condition, \"a hint\" does.\n"
         "Names that the code declares are its own. %check lists the checks.",
     .takes = {"[NAME...]"},
     .cell_takes = {"NAME"},
     .line = check_line,
     .cell = check_cell,
     .in_jobs = true,
     .takes_text = true});

}  // namespace
}  // namespace lockstep::shell
