// %history shows the cells of this session as they were typed, %output what they have shown.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/events/event_reader.h"
#include "shell/journal/journal_reader.h"
#include "shell/scripts/magic_arguments.h"
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

/// Sets the cell of an event that is shown again; returns false for one that is not.
bool set_cell(Event& event, int64_t cell) {
  if (auto* output = std::get_if<OutputEvent>(&event)) return output->cell = cell, true;
  if (auto* value = std::get_if<ValueEvent>(&event)) return value->cell = cell, true;
  if (auto* error = std::get_if<ErrorEvent>(&event)) return error->cell = cell, true;
  if (std::holds_alternative<FindingEvent>(event)) return true;  // it says where it was found
  if (auto* page = std::get_if<PageEvent>(&event)) return page->cell = cell, true;
  return false;
}

CellOutcome show_again(MagicCall& call) {
  SessionCore& session = call.session;
  const std::optional<std::string> word = call.given.word();
  const int64_t cell = word ? parse_count(*word, "the number of a cell") : session.next_cell() - 1;
  if (cell < 1 || cell >= session.next_cell())
    throw UsageError("there is no cell " + std::to_string(cell) + " yet; %history lists those that have run");
  if (session.journal().last_input() == 0)
    throw UsageError("this session keeps no journal, which has what cells have shown");
  JournalReader reader(session.journal().path());
  std::vector<Event> found;  // first all of them: what is shown goes into the journal, too
  size_t missing = 0;
  while (const auto record = reader.next()) {
    if ((*record)["event"] == "missing") missing += record->value("records", size_t{0});
    const auto its_cell = record->find("cell");
    if (its_cell == record->end() || *its_cell != cell) continue;
    std::optional<Event> event = read_event(*record);
    if (event && set_cell(*event, session.current_number())) found.push_back(std::move(*event));
  }
  for (const Event& event : found) session.show(event);
  if (found.empty()) session.message("cell " + std::to_string(cell) + " has shown nothing");
  if (missing > 0)
    session.message(std::to_string(missing) + " records of the session are missing in its journal, maybe of this cell");
  return {};
}

const RegisterMagic kOutput({.name = "output",
                             .summary = "shows again what a cell has shown: output, values, errors and findings",
                             .help = "It comes from the session's journal, also what came while no browser or terminal "
                                     "was there.",
                             .takes = {{"[CELL]", "its number; the last one if it is left out"}},
                             .line = show_again,
                             .in_jobs = true,
                             .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell
