// `lockstep doctor` draws the checks, and says whether a session can start.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "protocol/installation.h"
#include "protocol/version.h"
#include "shell/commands/command.h"
#include "shell/commands/doctor.h"
#include "shell/session/outcome.h"
#include "shell/text/screen.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

const char* word_of(CheckState state) {
  return state == CheckState::ok ? "ok" : state == CheckState::note ? "note" : "missing";
}

std::string draw(const Check& check, int name_width, const Screen& screen) {
  const Signs& sign = signs(screen);
  const auto [mark, style] = check.state == CheckState::ok     ? std::pair(sign.good, Style::good)
                             : check.state == CheckState::note ? std::pair(sign.note, Style::note)
                                                               : std::pair(sign.fault, Style::fault);
  const int mark_width = std::max(text_width(sign.good), text_width(sign.fault));
  const std::string indent(static_cast<size_t>(mark_width + 1 + name_width + 2), ' ');
  const int columns = screen.width > 0 ? std::max(30, screen.width - 1 - static_cast<int>(indent.size())) : 0;
  std::string text = paint(screen, style, mark) +
                     std::string(static_cast<size_t>(mark_width - text_width(mark) + 1), ' ') + check.name +
                     std::string(static_cast<size_t>(name_width - text_width(check.name) + 2), ' ');
  bool first = true;
  const auto add = [&](const std::string& words) {
    for (const std::string& line : wrapped(without_controls(words), columns)) {
      text += (first ? "" : indent) + line + "\n";
      first = false;
    }
  };
  add(check.found.empty() ? "-" : check.found);
  if (!check.fix.empty()) add("fix: " + check.fix);
  return text;
}

int doctor(bool as_json) {
  std::vector<Check> checks = check_installation();
  for (Check& check : check_gpus()) checks.push_back(std::move(check));
  for (Check& check : check_machine()) checks.push_back(std::move(check));
  const bool can_start =
      std::none_of(checks.begin(), checks.end(), [](const Check& check) { return check.state == CheckState::missing; });
  const bool can_compile = can_start && !protocol::is_run_only();
  if (as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Check& check : checks)
      list.push_back({{"name", check.name},
                      {"state", word_of(check.state)},
                      {"found", check.found},
                      {"mend", check.fix.empty() ? nlohmann::json(nullptr) : nlohmann::json(check.fix)},
                      {"data", check.data}});
    const nlohmann::json report = {
        {"lockstep", kVersion}, {"can_start", can_start}, {"can_compile", can_compile}, {"checks", list}};
    std::puts(report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return can_start ? kExitOk : kExitNoStart;
  }
  const Screen screen = detect_screen(STDOUT_FILENO);
  int name_width = 0;
  for (const Check& check : checks) name_width = std::max(name_width, text_width(check.name));
  for (const Check& check : checks) std::fputs(draw(check, name_width, screen).c_str(), stdout);
  const std::string can = can_compile            ? "A session can start."
                          : protocol::is_wheel() ? "Jobs can be watched. C++ cells can't be compiled."
                                                 : "Built files run here. Cells can't be compiled.";
  const std::string verdict = can_start ? paint(screen, Style::good, can)
                                        : paint(screen, Style::fault, "No session can start: fix what is marked ") +
                                              paint(screen, Style::fault, signs(screen).fault) + ".";
  std::printf("\n%s\n", verdict.c_str());
  return can_start ? kExitOk : kExitNoStart;
}

std::function<int()> set_up_doctor(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  app.add_flag("--json", *as_json, "One JSON object rather than lines for people");
  app.footer("Exit codes: 0 a session can start, without compiler one of a built file; 3 it can't.");
  return [as_json] { return doctor(*as_json); };
}

const RegisterCommand kDoctor({"doctor", "What was found on this machine, what is missing, and how to fix it",
                               set_up_doctor});

}  // namespace
}  // namespace lockstep::shell
