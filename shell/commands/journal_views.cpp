#include "shell/commands/journal_views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "shell/events/event_reader.h"
#include "shell/journal/journal_reader.h"
#include "shell/jupyter/questions.h"
#include "shell/reports/notebook_outputs.h"
#include "shell/terminal/renderer.h"
#include "shell/terminal/shown_journal.h"
#include "shell/text/text.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

/// The cells of a notebook that has not run yet.
json empty_notebook(const JournalContent& content) {
  json cells = json::array();
  for (const JournalEntry& entry : content.entries) {
    json cell = {{"cell_type", entry.markdown ? "markdown" : "code"},
                 {"id", fmt::format("cell-{}", cells.size())},
                 {"metadata", json::object()},
                 {"source", entry.text}};
    if (!entry.title.empty()) cell["metadata"]["title"] = entry.title;
    if (!entry.markdown) cell["outputs"] = json::array();
    cells.push_back(std::move(cell));
  }
  const bool is_python = content.is_python();
  return {{"nbformat", 4},
          {"nbformat_minor", 5},
          {"metadata",
           {{"kernelspec",
             {{"name", is_python ? "lockstep-python" : "lockstep"},
              {"display_name", is_python ? "Lockstep (Python)" : "Lockstep (C++20)"},
              {"language", is_python ? "python" : "c++20"}}},
            {"language_info", jupyter::kernel_info(is_python ? Language::python : Language::cpp)["language_info"]}}},
          {"cells", std::move(cells)}};
}

/// Runs the journal through what stores the outputs of a run.
void write_notebook(const JournalInfo& journal, const JournalContent& content, const std::string& path) {
  NotebookOutputs notebook(nlohmann::ordered_json(empty_notebook(content)), path);
  JournalReader reader(journal.path);
  int index = -1;
  bool runs = false;
  const auto end = [&] {
    if (!std::exchange(runs, false)) return;
    const JournalEntry& entry = content.entries.at(static_cast<size_t>(index));
    notebook.end_cell({.cell = entry.number, .status = entry.status.value_or(CellStatus::interrupted)});
  };
  const int last = static_cast<int>(content.entries.size()) - 1;  // a session that runs may have more by now
  while (const auto record = reader.next()) {
    const std::string event = (*record)["event"];
    if (event == "markdown" || event == "input") end();
    if ((event == "markdown" || event == "input") && index == last) break;
    if (event == "markdown") {
      ++index;
    } else if (event == "input") {
      notebook.begin_cell({.text = protocol::text_at(*record, "text"), .notebook_cell = ++index});
      runs = true;
    } else if (event == "ran") {
      end();
    } else if (event == "missing") {
      notebook.take(MessageEvent{0, words_of_missing(*record), nullptr});
    } else if (const auto read = read_event(*record)) {
      notebook.take(*read);
    }
  }
  end();
  if (!notebook.write()) throw UsageError(path + " was not written");
}

/// The cell of an entry as it runs again; nothing where none of it does.
std::optional<ScriptCell> cell_of(const JournalEntry& entry, Language language) {
  if (entry.markdown) return ScriptCell{.markdown = true, .text = entry.text};
  if (entry.undone || only_looks(entry.text)) return std::nullopt;
  ScriptCell cell{.title = entry.title, .text = entry.text, .number = entry.number};
  if (entry.status == CellStatus::ok) cell.text = without_looking(entry.text, language);
  return cell.text.empty() ? std::nullopt : std::optional(std::move(cell));
}

Language language_of(const JournalContent& content) { return content.is_python() ? Language::python : Language::cpp; }

}  // namespace

void print_journal(const JournalInfo& journal) {
  const Screen screen = detect_screen(STDOUT_FILENO);
  TextOutput output(STDOUT_FILENO);
  Renderer renderer(screen, [&](std::string_view text) { output.write(text); });
  renderer.set_live(false);
  JournalReader reader(journal.path);
  const bool is_closed = draw_journal(reader, 0, renderer, screen, [&] { return output.closed(); });
  if (!is_closed && !journal.is_open)
    renderer.show(
        paint(screen, Style::note,
              fmt::format("{} the session was killed here, or its end could not be written", signs(screen).stopped)) +
        "\n");
}

void print_journal_lines(const JournalInfo& journal) {
  TextOutput output(STDOUT_FILENO);
  JournalReader reader(journal.path);
  while (const auto record = output.closed() ? std::nullopt : reader.next())
    output.write(record->dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

std::string gaps_of(const JournalInfo& journal, const JournalContent& content) {
  std::vector<std::string> gaps;
  if (content.damaged > 0)
    gaps.push_back(
        fmt::format("{} record{} of the journal can't be read", content.damaged, content.damaged == 1 ? "" : "s"));
  if (const int64_t missing = content.missing_cells(); missing > 0)
    gaps.push_back(fmt::format("{} cell{} of the session {} not in the journal", missing, missing == 1 ? "" : "s",
                               missing == 1 ? "is" : "are"));
  if (!content.is_closed && !journal.is_open)
    gaps.emplace_back("the session was killed, or the end of the journal could not be written");
  return fmt::format("{}", fmt::join(gaps, "; "));
}

std::string export_journal(const JournalInfo& journal, const std::string& path, bool force) {
  namespace fs = std::filesystem;
  const JournalContent content = read_journal(journal.path);
  const std::string gaps = gaps_of(journal, content).empty() ? "" : "; " + gaps_of(journal, content);
  const std::string extension = fs::path(path).extension();
  const std::string script = content.is_python() ? ".py" : ".cpp";
  if (extension != script && extension != ".ipynb")
    throw UsageError(fmt::format("--export {}: the cells of this session are {}: name a {} or an .ipynb file", path,
                                 content.is_python() ? "Python" : "C++", script));
  if (fs::exists(path) && !force) throw UsageError(path + " exists; give another name, or -f to write over it");
  if (content.cells() == 0) throw UsageError("the journal of " + journal.id + " has no cell");
  if (extension == ".ipynb") {
    write_notebook(journal, content, path);
    std::vector<ScriptCell> cells;
    for (const JournalEntry& entry : content.entries) cells.push_back({.text = entry.text, .number = entry.number});
    return fmt::format("wrote {} cell{} with their outputs to {}{}{}", content.cells(), content.cells() == 1 ? "" : "s",
                       path, gaps, content.is_python() ? "" : shifted_values(cells));
  }
  const Language language = language_of(content);
  std::vector<ScriptCell> cells;
  size_t failed = 0;
  for (const JournalEntry& entry : content.entries) {
    std::optional<ScriptCell> cell = cell_of(entry, language);
    if (!cell) continue;
    const bool is_good = entry.markdown || entry.status == CellStatus::ok;
    failed += is_good ? 0 : 1;
    if (is_good) cells.push_back(std::move(*cell));
  }
  if (cells.empty()) throw UsageError("no cell of " + journal.id + " has ended well: an .ipynb file takes all of them");
  const std::string text = format_script(cells, language);
  if (const int error = protocol::replace_file(path, text, 0666))
    throw UsageError(path + " can't be written: " + std::strerror(error));
  return fmt::format("wrote {} cell{} to {}{}{}{}{}", cells.size(), cells.size() == 1 ? "" : "s", path,
                     failed > 0 ? fmt::format("; left out {} that failed or did not end", failed) : std::string(), gaps,
                     content.is_python() ? "" : shifted_values(cells), moved_markers(cells, language));
}

CellsAgain cells_again(const JournalContent& content) {
  CellsAgain again;
  for (const JournalEntry& entry : content.entries) {
    std::optional<ScriptCell> cell = cell_of(entry, language_of(content));
    if (!cell) continue;
    if (!entry.markdown && (!entry.status || entry.status == CellStatus::interrupted)) {
      const bool is_last = entry.input == content.inputs;
      const char* const why = entry.status ? "was interrupted"
                              : is_last    ? "had not ended"
                                           : "has no end in the journal";
      again.left_out.push_back(entry.number > 0 ? fmt::format("cell {}, which {}", entry.number, why)
                                                : fmt::format("a cell that {}", why));
      continue;
    }
    if (!entry.markdown && entry.status != CellStatus::ok)
      cell->tags.push_back({std::string(kFailedBefore), std::string(to_string(*entry.status))});
    else if (entry.faults > 0)
      cell->tags.push_back({std::string(kFailedBefore), "a fault"});
    again.cells.push_back(std::move(*cell));
  }
  return again;
}

}  // namespace lockstep::shell
