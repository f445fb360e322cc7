#include "shell/reports/notebook_outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "shell/jupyter/ran_cell.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

/// JSON is UTF-8; output need not be.
std::string utf8(const std::string& text) { return find_invalid_utf8(text) ? to_utf8(to_wide(text)) : text; }

/// Writes a multi-line string, as nbformat stores it.
template <typename Json>
Json lines_json(const std::string& text) {
  Json lines = Json::array();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

nlohmann::ordered_json read_notebook(const std::string& path) {
  const std::string text = protocol::read_file(path).value_or("");
  if (protocol::is_nested_too_deeply(text)) throw UsageError("--write: " + path + " is nested too deeply");
  auto notebook = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!notebook.is_object() || !notebook.contains("cells") || !notebook["cells"].is_array())
    throw UsageError("--write: " + path + " is no notebook; it stores outputs of one .ipynb file");
  return notebook;
}

template <typename Json>
bool is_injected(const Json& cell) {
  if (!cell.contains("metadata") || !cell["metadata"].is_object() || !cell["metadata"].contains("tags")) return false;
  const Json& tags = cell["metadata"]["tags"];
  return tags.is_array() && std::find(tags.begin(), tags.end(), "injected-parameters") != tags.end();
}

}  // namespace

NotebookOutputs::NotebookOutputs(const std::string& from, const std::string& to)
    : NotebookOutputs(read_notebook(from), to) {}

NotebookOutputs::NotebookOutputs(nlohmann::ordered_json notebook, const std::string& to)
    : to_(to),
      notebook_(std::move(notebook)),
      display_(no_clock_, [this](std::string_view type, const nlohmann::json& content) { store(type, content); }) {
  const fs::path folder = fs::path(to).has_parent_path() ? fs::path(to).parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK) != 0)
    throw UsageError("--write " + to + ": the folder " + folder.string() +
                     " can't be written: " + std::strerror(errno));
  remove_injected();
  for (Json& cell : notebook_["cells"]) {
    if (cell.value("cell_type", "") != "code") continue;
    cell["outputs"] = Json::array();
    cell["execution_count"] = nullptr;
  }
}

void NotebookOutputs::remove_injected() {
  Json kept = Json::array();
  for (Json& cell : notebook_["cells"]) {
    place_of_.push_back(kept.size());
    if (!is_injected(cell)) kept.push_back(std::move(cell));
  }
  notebook_["cells"] = std::move(kept);
}

/// Returns its index. Cells below move down by one.
size_t NotebookOutputs::inject(const ScriptCell& cell) {
  Json& cells = notebook_["cells"];
  Json injected = {{"cell_type", "code"},
                   {"execution_count", nullptr},
                   {"metadata", {{"tags", Json::array({"injected-parameters"})}}},
                   {"outputs", Json::array()},
                   {"source", lines_json<Json>(cell.text)}};
  const auto minor = notebook_.find("nbformat_minor");
  if (minor != notebook_.end() && minor->is_number_integer() && minor->get<int>() >= 5) {
    std::set<std::string> ids;
    for (const Json& each : cells) ids.insert(each.value("id", ""));
    std::random_device random;
    std::string id;
    do id = fmt::format("{:08x}", random());
    while (ids.contains(id));
    injected["id"] = id;
  }
  const size_t index = std::min(cell_ ? *cell_ + 1 : 1, cells.size());
  cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(index), std::move(injected));
  for (size_t& each : place_of_)
    if (each >= index) ++each;
  return index;
}

void NotebookOutputs::begin_cell(const ScriptCell& cell) {
  cell_ = cell.notebook_cell < 0 ? inject(cell) : place_of_.at(static_cast<size_t>(cell.notebook_cell));
  clears_next_ = false;
  runs_ = true;
  display_.begin({.paged = jupyter::asks_for_help(cell.text), .in_full = true});
}

void NotebookOutputs::take(const Event& event) {
  const auto* session = std::get_if<SessionEvent>(&event);
  const bool is_first_start = session && !std::exchange(has_started_, true);
  if (is_first_start && !session->is_asked)
    display_.set_ranks(session->ranks);  // a kernel's ranks have started before its first cell
  else if (cell_ && (runs_ || !std::holds_alternative<MarkdownEvent>(event)))
    display_.take(event);
}

void NotebookOutputs::store(std::string_view type, const nlohmann::json& content) {
  if (type == "clear_output" && !content["wait"].get<bool>()) outputs() = Json::array();
  if (type == "clear_output") clears_next_ = content["wait"].get<bool>();
  if (type == "clear_output") return;
  if (std::exchange(clears_next_, false)) outputs() = Json::array();
  if (type == "stream") return store_text(content["name"], utf8(content["text"]));
  Json stored = {{"output_type", type}};
  for (const auto& [key, value] : content.items())
    if (key != "transient" && key != "data") stored[key] = value;
  if (content.contains("data"))
    for (const auto& [mime, data] : content["data"].items())
      stored["data"][mime] = data.is_string() ? lines_json<Json>(utf8(data.get<std::string>())) : Json(data);
  outputs().push_back(std::move(stored));
}

void NotebookOutputs::store_text(const std::string& name, const std::string& text) {
  Json& list = outputs();
  if (list.empty() || list.back()["output_type"] != "stream" || list.back()["name"] != name)
    list.push_back({{"name", name}, {"output_type", "stream"}, {"text", Json::array()}});
  std::string joined;
  for (const Json& line : list.back()["text"]) joined += line.get<std::string>();
  list.back()["text"] = lines_json<Json>(joined + text);
}

void NotebookOutputs::end_cell(const CellOutcome& outcome) {
  jupyter::Display::Report report = display_.end();
  runs_ = false;
  if (outcome.status != CellStatus::ok) {
    jupyter::name_error(report, outcome.status);
    store("error", {{"ename", report.error_name}, {"evalue", report.error_value}, {"traceback", report.traceback}});
  } else if (!report.traceback.empty()) {  // such as a rank that died after its part
    store("stream", {{"name", "stderr"}, {"text", fmt::format("{}\n", fmt::join(report.traceback, "\n"))}});
  }
  if (outcome.cell <= 0) return;
  notebook_["cells"][*cell_]["execution_count"] = outcome.cell;
  for (Json& output : outputs())
    if (output["output_type"] == "execute_result") output["execution_count"] = outcome.cell;
}

NotebookOutputs::Json& NotebookOutputs::outputs() { return notebook_["cells"][*cell_]["outputs"]; }

bool NotebookOutputs::write() {
  if (runs_) end_cell({.status = CellStatus::error});  // the ranks could not be started
  const std::string text = notebook_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code none;
  const fs::file_status before = fs::status(to_, none);
  const mode_t mode = fs::exists(before) ? static_cast<mode_t>(before.permissions()) : 0666;
  if (const int error = protocol::replace_file(to_, text, mode)) {
    std::fprintf(stderr, "lockstep: --write %s can't be written: %s\n", to_.c_str(), std::strerror(error));
    return false;
  }
  if (fs::exists(before)) fs::permissions(to_, before.permissions(), none);  // whatever the umask is
  return true;
}

}  // namespace lockstep::shell
