#include "shell/journal/journal_content.h"

#include <algorithm>

#include "shell/journal/journal_reader.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

/// Takes in what a record says; damage within a record that has its checksum is none of ours.
void take(JournalContent& content, const json& record) {
  const std::string event = record["event"];
  if (event == "journal") {
    content.description = record;
  } else if (event == "session" && content.ranks == 0) {
    content.ranks = static_cast<int>(record.at("ranks").size());
    content.backend = record.at("backend");
    if (content.description.empty())  // the first record is lost
      content.description["language"] = record.at("versions").contains("python") ? "python" : "cpp";
  } else if (event == "markdown") {
    content.entries.push_back({.markdown = true, .text = record.at("text")});
  } else if (event == "input") {
    content.entries.push_back({.input = record.at("input"), .title = record.at("title"), .text = record.at("text")});
    content.inputs = std::max(content.inputs, content.entries.back().input);
  } else if (event == "ran") {
    const int64_t input = record.at("input");
    content.inputs = std::max(content.inputs, input);
    const auto cell = std::find_if(content.entries.rbegin(), content.entries.rend(),
                                   [&](const JournalEntry& each) { return !each.markdown && each.input == input; });
    if (cell == content.entries.rend() || cell->status) return;  // its text is lost
    cell->number = record.at("cell");
    cell->status = record.at("status").get<CellStatus>();
    cell->faults = record.at("faults");
  } else if (event == "message" && record.at("data").is_object()) {  // of %undo: others are with the output
    for (JournalEntry& entry : content.entries)
      if (entry.number > 0 && entry.number == record["data"].value("cell", int64_t{0})) entry.undone = true;
  } else if (event == "closed") {
    content.is_closed = true;
    content.inputs = std::max(content.inputs, record.value("inputs", int64_t{0}));
  }
}

}  // namespace

size_t JournalContent::cells() const {
  return static_cast<size_t>(std::ranges::count(entries, false, &JournalEntry::markdown));
}

int64_t JournalContent::missing_cells() const { return std::max(int64_t{0}, inputs - static_cast<int64_t>(cells())); }

JournalContent read_journal(const std::string& path) {
  JournalContent content;
  JournalReader reader(path, /*with_output=*/false);
  while (const auto record = reader.next()) {
    try {
      take(content, *record);
    } catch (const json::exception&) {
      ++content.damaged;
    }
  }
  content.damaged += reader.damaged();
  return content;
}

}  // namespace lockstep::shell
