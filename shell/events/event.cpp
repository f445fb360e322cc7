#include "shell/events/event.h"

#include <cmath>

#include "protocol/json_fields.h"
#include "protocol/utf8.h"
#include "shell/events/base64.h"

namespace lockstep::protocol {
LOCKSTEP_JSON(Diagnostic, severity, line, column, file, message)
}

namespace lockstep::shell {
namespace {

using nlohmann::json;

json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

/// JSON has no NaN and no infinity; the library would write null.
json finite(json value) {
  if (value.is_number_float()) return number(value.get<double>());
  if (value.is_structured())
    for (auto& element : value) element = finite(std::move(element));
  return value;
}

/// Text may come from a cell, so it need not be UTF-8; U+FFFD stands for what is not.
json text(const std::string& value) {
  if (!find_invalid_utf8(value)) return value;
  return json::parse(json(value).dump(-1, ' ', false, json::error_handler_t::replace));
}

template <typename T, typename F>
json by_rank(const std::map<int, T>& values, F convert) {
  json object = json::object();
  for (const auto& [rank, value] : values) object[std::to_string(rank)] = convert(value);
  return object;
}

const auto kAsIs = [](const auto& value) { return json(value); };

json fields(const SessionEvent& e) {
  return {{"event", "session"},
          {"id", e.id},
          {"ranks", e.ranks},
          {"backend", e.backend},
          {"devices", by_rank(e.devices, kAsIs)},
          {"versions", e.versions},
          {"grown", e.has_grown}};
}

json fields(const CellEvent& e) {
  return {{"event", "cell"},
          {"cell", e.cell},
          {"title", text(e.title)},
          {"ranks", e.ranks},
          {"status", e.status},
          {"rank_status", by_rank(e.rank_status, kAsIs)},
          {"run_ms", by_rank(e.run_ms, number)},
          {"compile_ms", number(e.compile_ms)},
          {"file", e.file ? text(*e.file) : json(nullptr)},
          {"line", e.line},
          {"expected", e.expected}};
}

json fields(const OutputEvent& e) {
  json event = {{"event", "output"}, {"cell", e.cell}, {"ranks", e.ranks}, {"stream", e.stream}};
  if (find_invalid_utf8(e.bytes))
    event["base64"] = base64(e.bytes);
  else
    event["text"] = e.bytes;
  return event;
}

json fields(const ValueEvent& e) {
  return {{"event", "value"},     {"cell", e.cell},         {"ranks", e.ranks},
          {"text", text(e.text)}, {"data", finite(e.data)}, {"label", e.label.empty() ? json(nullptr) : text(e.label)}};
}

json fields(const ErrorEvent& e) {
  json stack = json::array();
  for (const auto& frame : e.stack) stack.push_back(text(frame));
  json event = {{"event", "error"},           {"cell", e.cell},
                {"ranks", e.ranks},           {"type", text(e.type)},
                {"message", text(e.message)}, {"where", e.where ? text(*e.where) : json(nullptr)},
                {"root_cause", e.root_cause}, {"stack", std::move(stack)}};
  if (!e.diagnostics.empty()) event["diagnostics"] = e.diagnostics;
  if (!e.traceback.empty()) event["traceback"] = text(e.traceback);
  return event;
}

json fields(const FindingEvent& e) {
  json event = finite(json(e.finding));
  event["event"] = "finding";
  event["schema"] = 1;
  return event;
}

json fields(const RankEvent& e) {
  return {{"event", "rank"}, {"rank", e.rank}, {"state", e.state}, {"message", text(e.message)}};
}

json fields(const MessageEvent& e) {
  return {{"event", "message"}, {"cell", e.cell}, {"text", text(e.text)}, {"data", finite(e.data)}};
}

json fields(const ProgressEvent& e) {
  return {{"event", "progress"},
          {"cell", e.cell},
          {"loop", e.loop},
          {"parent", e.parent > 0 ? json(e.parent) : json(nullptr)},
          {"label", text(e.label)},
          {"line", e.line},
          {"ranks", e.ranks},
          {"done", by_rank(e.done, kAsIs)},
          {"total", by_rank(e.total, kAsIs)},
          {"elapsed_s", by_rank(e.elapsed_s, number)},
          {"state", e.state}};
}

json fields(const PageEvent& e) { return {{"event", "page"}, {"cell", e.cell}, {"text", text(e.text)}}; }

json fields(const ActivityEvent& e) {
  static constexpr const char* kPhases[] = {"over", "starting", "connecting", "compiling", "loading", "running"};
  json parts = json::array();
  for (const auto& part : e.parts) {
    const bool waits = !part.collective.empty();
    parts.push_back({{"ranks", part.ranks},
                     {"state", part.state},
                     {"collective", waits ? json(part.collective) : json(nullptr)},
                     {"group", waits ? json(part.group) : json(nullptr)},
                     {"seq", waits ? json(part.seq) : json(nullptr)},
                     {"since_s", waits ? number(part.since_s) : json(nullptr)}});
  }
  json step = nullptr;
  if (e.step)
    step = {{"what", e.step->what},
            {"number", e.step->number},
            {"count", e.step->count},
            {"elapsed_s", number(e.step_s)},
            {"last_s", e.step->last_s}};
  return {{"event", "activity"},     {"phase", kPhases[static_cast<size_t>(e.phase)]},
          {"cell", e.cell},          {"elapsed_s", number(e.elapsed_s)},
          {"step", std::move(step)}, {"parts", std::move(parts)}};
}

json fields(const MarkdownEvent& e) { return {{"event", "markdown"}, {"text", text(e.text)}}; }

json fields(const EndEvent& e) { return {{"event", "end"}, {"exit_code", e.exit_code}, {"counts", e.counts}}; }

}  // namespace

json to_event_json(const Event& event) {
  return std::visit([](const auto& e) { return fields(e); }, event);
}

}  // namespace lockstep::shell
