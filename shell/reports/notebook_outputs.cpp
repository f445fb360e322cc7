#include "shell/reports/notebook_outputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <utility>

#include "protocol/chart.h"
#include "protocol/error.h"
#include "shell/events/value_merger.h"
#include "shell/jupyter/displayed_data.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

/// JSON is UTF-8; output need not be.
std::string utf8(const std::string& text) { return find_invalid_utf8(text) ? to_utf8(to_wide(text)) : text; }

/// A multi-line string, as nbformat stores it.
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

/// As in the kernel: whose, and the first line of what.
std::string value_of(const ErrorEvent& error) {
  const std::string ranks = error.ranks.empty() || error.type == "compile_error" ? "" : error.ranks.words() + ": ";
  for (const std::string_view line : lines_of(error.message))
    if (line.find_first_not_of(" \t") != std::string_view::npos) return ranks + std::string(line);
  return ranks;
}

template <typename Json>
bool is_injected(const Json& cell) {
  if (!cell.contains("metadata") || !cell["metadata"].is_object() || !cell["metadata"].contains("tags")) return false;
  const Json& tags = cell["metadata"]["tags"];
  return tags.is_array() && std::find(tags.begin(), tags.end(), "injected-parameters") != tags.end();
}

}  // namespace

NotebookOutputs::NotebookOutputs(const std::string& from, const std::string& to) : to_(to) {
  std::ifstream file(from, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  notebook_ = Json::parse(text, nullptr, false);
  if (!notebook_.is_object() || !notebook_.contains("cells") || !notebook_["cells"].is_array())
    throw UsageError("--write: " + from + " is no notebook; it stores outputs of one .ipynb file");
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
  const size_t index = std::min(last_ + 1, cells.size());
  cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(index), std::move(injected));
  for (size_t& each : place_of_)
    if (each >= index) ++each;
  return index;
}

void NotebookOutputs::begin_cell(const ScriptCell& cell) {
  for (CapturedText* const each : {&text_, &output_, &standard_error_}) each->finish();
  errors_.clear();
  if (cell.notebook_cell < 0)
    cell_ = inject(cell);
  else
    cell_ = place_of_.at(static_cast<size_t>(cell.notebook_cell));
  last_ = *cell_;
}

NotebookOutputs::Json* NotebookOutputs::outputs() { return cell_ ? &notebook_["cells"][*cell_]["outputs"] : nullptr; }

void NotebookOutputs::add_text(const std::string& text, const char* stream) {
  Json* const list = outputs();
  if (!list || text.empty()) return;
  if (!list->empty() && list->back().value("output_type", "") == "stream" && list->back()["name"] == stream) {
    std::string joined;
    for (const Json& line : list->back()["text"]) joined += line.get<std::string>();
    list->back()["text"] = lines_json<Json>(joined + utf8(text));
    return;
  }
  list->push_back({{"name", stream}, {"output_type", "stream"}, {"text", lines_json<Json>(utf8(text))}});
}

void NotebookOutputs::take(const Event& event) {
  if (const auto* error = std::get_if<ErrorEvent>(&event)) errors_.push_back(*error);
  if (const auto* output = std::get_if<OutputEvent>(&event)) {
    add_values();
    const bool error = output->stream == Stream::standard_error;
    CapturedText& stream = error ? standard_error_ : output_;
    stream.take(event);
    add_text(stream.drawn(), error ? "stderr" : "stdout");
    return;
  }
  if (const auto* value = std::get_if<ValueEvent>(&event)) {
    add_value(*value);
    return;
  }
  // They come beside the outputs, and say nothing of their order.
  if (std::holds_alternative<ActivityEvent>(event)) return;
  if (const auto* loop = std::get_if<ProgressEvent>(&event); loop && loop->state == LoopState::running) return;
  add_values();
  if (const auto* finding = std::get_if<FindingEvent>(&event)) {
    add_data("display_data", jupyter::finding_data(finding->finding));
    return;
  }
  if (const auto* session = std::get_if<SessionEvent>(&event)) {
    all_ = session->ranks;
    for (CapturedText* const each : {&text_, &output_, &standard_error_}) {
      each->take(event);  // how wide the names of ranks are
      (void)each->drawn();  // of a kernel, the frontend shows that it has started
    }
    return;
  }
  text_.take(event);
  const std::string text = text_.drawn();
  Json* const list = outputs();
  if (!list || text.empty()) return;
  add_streams();
  if (!errors_.empty()) {
    const auto cause =
        std::find_if(errors_.rbegin(), errors_.rend(), [](const ErrorEvent& each) { return each.root_cause; });
    const ErrorEvent& error = cause != errors_.rend() ? *cause : errors_.back();
    Json traceback = Json::array();
    for (const std::string_view line : lines_of(text)) traceback.push_back(utf8(std::string(line)));
    list->push_back({{"ename", utf8(error.type)},
                     {"evalue", utf8(value_of(error))},
                     {"output_type", "error"},
                     {"traceback", std::move(traceback)}});
    errors_.clear();
  } else {
    add_text(text, "stdout");
  }
}

/// As the kernel draws them (shell/jupyter/display.cpp), but for its clock: other events end the wait.
void NotebookOutputs::add_value(const ValueEvent& event) {
  if (merge_value(values_, event, all_, [this] { add_values(); })) add_values();
}

void NotebookOutputs::add_values() {
  if (values_.empty()) return;
  const std::vector<ValueEvent> values = std::exchange(values_, {});
  const nlohmann::json data = jupyter::value_data(values, all_);
  add_data("execute_result", data);
  if (data.contains(kChartMime)) return;
  if (const nlohmann::json chart = jupyter::chart_data(values, all_); !chart.is_null()) add_data("display_data", chart);
}

void NotebookOutputs::add_data(const char* type, const nlohmann::json& data) {
  Json* const list = outputs();
  if (!list) return;
  add_streams();
  Json stored = Json::object();
  for (const auto& [mime, content] : data.items())
    stored[mime] = content.is_string() ? lines_json<Json>(utf8(content.get<std::string>())) : Json(content);
  Json output = {{"data", std::move(stored)}, {"metadata", Json::object()}, {"output_type", type}};
  if (std::string_view(type) == "execute_result") output["execution_count"] = nullptr;  // known at the cell's end
  list->push_back(std::move(output));
}

/// Lines that have no end yet come before what is no output.
void NotebookOutputs::add_streams() {
  add_text(output_.finish(), "stdout");
  add_text(standard_error_.finish(), "stderr");
}

void NotebookOutputs::end_cell(int64_t number) {
  add_values();
  add_streams();
  add_text(text_.finish(), "stdout");
  if (cell_ && number > 0) {
    notebook_["cells"][*cell_]["execution_count"] = number;
    for (Json& output : *outputs())
      if (output["output_type"] == "execute_result") output["execution_count"] = number;
  }
  cell_.reset();
}

bool NotebookOutputs::write() {
  const std::string text = notebook_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  // In the same folder, so that the last step is one of the file system.
  const std::string beside = to_ + fmt::format(".{}.tmp", ::getpid());
  std::error_code error;
  {
    std::ofstream file(beside, std::ios::trunc | std::ios::binary);
    file << text;
    file.close();
    if (!file) error = std::error_code(errno, std::generic_category());
  }
  if (!error && fs::exists(to_)) fs::permissions(beside, fs::status(to_).permissions(), error);
  if (!error) fs::rename(beside, to_, error);
  if (!error) return true;
  std::error_code none;
  fs::remove(beside, none);
  std::fprintf(stderr, "lockstep: --write %s can't be written: %s\n", to_.c_str(), error.message().c_str());
  return false;
}

}  // namespace lockstep::shell
