// %history: the cells of this session as they were typed.
#include <nlohmann/json.hpp>

#include "shell/scripts/magic_arguments.h"
#include "shell/session/history_selection.h"
#include "shell/session/session_core.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

const char* const kHistoryUsage = "%history [FIRST-LAST] [-n K] [-g TEXT]";

CellOutcome history(MagicCall& call) {
  MagicArguments arguments(call.arguments, kHistoryUsage);
  const std::optional<std::string> last = arguments.take_value("-n", "--last");
  const std::optional<std::string> wanted = arguments.take_value("-g", "--grep");
  const std::optional<std::string> range = arguments.rest_word();
  std::string text;
  nlohmann::json data = nlohmann::json::array();
  for (const HistoryEntry* entry : select_history(call.session.history, range, last)) {
    if (wanted && entry->text.find(*wanted) == std::string::npos) continue;
    std::string head = entry->number > 0 ? "[" + std::to_string(entry->number) + "] " : "[-] ";
    const std::string indent(head.size(), ' ');
    for (const std::string_view line : lines_of(entry->text)) {
      text += head + std::string(line) + "\n";
      head = indent;
    }
    data.push_back(
        {{"cell", entry->number}, {"text", entry->text}, {"ranks", entry->ranks}, {"status", entry->status}});
  }
  call.session.message(text.empty() ? "no such cell" : text, std::move(data));
  return {};
}

const RegisterMagic kHistory({.name = "history",
                              .usage = kHistoryUsage,
                              .summary = "the cells of this session as they were typed",
                              .help = "Shows the cells after their numbers; cells of magics alone have none ([-]).\n"
                                      "  3-7     cells 3 to 7;  7: that one\n"
                                      "  -n K    the last K\n"
                                      "  -g TEXT those that hold TEXT",
                              .line = history,
                              .cell = {},
                              .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
