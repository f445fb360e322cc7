// %history shows the cells of this session as they were typed.
#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

CellOutcome history(MagicCall& call) {
  const std::optional<std::string> wanted = call.given.value("--grep");
  std::string text;
  nlohmann::json data = nlohmann::json::array();
  for (const HistoryEntry* entry : call.session.history().select(call.given.word(), call.given.value("-n"))) {
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
                              .summary = "the cells of this session as they were typed",
                              .help = "Shows the cells after their numbers; cells of magics alone have none ([-]).",
                              .takes = {{"[FIRST-LAST]", "3-7: cells 3 to 7; 7: that one"},
                                        {"-n,--last K", "the last K"},
                                        {"-g,--grep TEXT", "those that hold TEXT"}},
                              .line = history,
                              .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
