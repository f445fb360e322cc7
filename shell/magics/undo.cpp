// %undo takes back what a cell has defined.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

/// Names → the newest cell that has defined each.
std::map<std::string, int64_t> cells_of_names(SessionCore& session) {
  std::map<std::string, int64_t> cells;
  const auto response = session.ask(protocol::ListNames{});
  if (const auto* list = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : list->names) cells[name.name] = std::max(cells[name.name], name.cell);
  return cells;
}

CellOutcome undo(MagicCall& call) {
  const std::optional<std::string> word = call.given.word();
  const auto before = cells_of_names(call.session);
  int64_t cell = word ? parse_count(*word, "the number of a cell") : 0;
  for (const auto& [name, defined_in] : before)
    if (!word) cell = std::max(cell, defined_in);
  std::vector<std::string> undone;
  for (const auto& [name, defined_in] : before)
    if (cell > 0 && defined_in == cell) undone.push_back(name);
  if (undone.empty())
    throw UsageError(word ? "cell " + *word + " has defined no name that is still there; %who lists the names"
                          : "no cell has defined a name that could be taken back");
  call.session.ask(protocol::Forget{.names = {}, .undo = cell});
  call.session.history().mark_undone(cell);

  const auto after = cells_of_names(call.session);
  std::vector<std::string> gone, back;
  nlohmann::json data = {{"cell", cell}, {"names", nlohmann::json::object()}};
  for (const auto& name : undone) {
    const auto known = after.find(name);
    data["names"][name] = known == after.end() ? nlohmann::json() : nlohmann::json(known->second);
    if (known == after.end())
      gone.push_back(name);
    else
      back.push_back(name + " is that of cell " + std::to_string(known->second) + " again");
  }
  std::string text = fmt::format("undid cell {}: {}", cell, fmt::join(back, ", "));
  if (!gone.empty())
    text += fmt::format("{}{} {} not defined any more", back.empty() ? "" : "; ", fmt::join(gone, ", "),
                        gone.size() == 1 ? "is" : "are");
  call.session.message(text, std::move(data));
  return {};
}

const RegisterMagic kUndo(
    {.name = "undo",
     .summary = "takes back what the last cell that defined names, or cell CELL, has defined",
     .help =
         "The cell's names step back on all ranks, and what they had replaced is there again. Again: the cell before.\n"
         "What the cell's statements have done stays done, and so do macros; %save leaves the cell out.",
     .takes = {"[CELL]"},
     .line = undo});

}  // namespace
}  // namespace lockstep::shell
