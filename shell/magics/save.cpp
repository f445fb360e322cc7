// %save writes the cells of this session as a session script.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "protocol/error.h"
#include "shell/scripts/script.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome save(MagicCall& call) {
  if (call.session.options().rehearsal) return {};
  const bool all = call.given.has("--all");
  const std::vector<std::string>& words = call.given.words();
  namespace fs = std::filesystem;
  fs::path path = fs::path(call.session.directory()) / words[0];
  if (path.extension().empty()) path += ".cpp";
  if (path.extension() == ".ipynb")
    throw UsageError("%save writes session scripts; name a .cpp file (jupytext turns it into a notebook)");
  if (fs::exists(path) && !call.given.has("--force"))
    throw UsageError(path.string() + " exists; give another name, or -f to write over it");

  std::vector<ScriptCell> cells;
  for (const HistoryEntry* entry :
       call.session.history().select(words.size() > 1 ? std::optional(words[1]) : std::nullopt, std::nullopt)) {
    if (only_looks(entry->text) || entry->undone || (!all && entry->status != CellStatus::ok)) continue;
    ScriptCell cell{.title = entry->title, .text = entry->text, .number = entry->number};
    if (entry->status != CellStatus::ok)
      cell.tags.push_back({"raises-exception", ""});
    else
      cell.text = without_looking(entry->text, Language::cpp);
    if (!cell.text.empty()) cells.push_back(std::move(cell));
  }
  if (cells.empty())
    throw UsageError("there is no cell to save yet" +
                     std::string(all ? "" : " that ended well; --all takes the others too"));
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << format_script(cells);
  file.close();
  if (!file)
    throw UsageError(path.string() + " can't be written (" + std::strerror(errno) +
                     "); choose another folder, or make room");
  call.session.message("wrote " + std::to_string(cells.size()) + (cells.size() == 1 ? " cell" : " cells") + " to " +
                       path.string() + shifted_values(cells) + moved_markers(cells));
  return {};
}

const RegisterMagic kSave(
    {.name = "save",
     .summary = "writes the cells of this session as a session script",
     .help = "The file runs with `lockstep run FILE`, and with %load FILE. It holds the cells that ended well.",
     .takes = {"FILE",
               {"[FIRST-LAST]", "these cells alone"},
               {"--all,-a", "the others too, tagged raises-exception"},
               {"-f,--force", "write over a file that exists"}},
     .line = save});

}  // namespace
}  // namespace lockstep::shell
