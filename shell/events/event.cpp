#include "shell/events/event.h"

#include <cmath>

#include "protocol/json_fields.h"
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
  if (is_utf8(value)) return value;
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
          {"versions", e.versions}};
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
  if (is_utf8(e.bytes))
    event["text"] = e.bytes;
  else
    event["base64"] = base64(e.bytes);
  return event;
}

json fields(const ValueEvent& e) {
  return {{"event", "value"}, {"cell", e.cell}, {"ranks", e.ranks}, {"text", text(e.text)}, {"data", finite(e.data)}};
}

json fields(const ErrorEvent& e) {
  json stack = json::array();
  for (const auto& frame : e.stack) stack.push_back(text(frame));
  json event = {{"event", "error"},           {"cell", e.cell},
                {"ranks", e.ranks},           {"type", text(e.type)},
                {"message", text(e.message)}, {"where", e.where ? text(*e.where) : json(nullptr)},
                {"root_cause", e.root_cause}, {"stack", std::move(stack)}};
  if (!e.diagnostics.empty()) event["diagnostics"] = e.diagnostics;
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

json fields(const MarkdownEvent& e) { return {{"event", "markdown"}, {"text", text(e.text)}}; }

json fields(const EndEvent& e) { return {{"event", "end"}, {"exit_code", e.exit_code}, {"counts", e.counts}}; }

}  // namespace

json to_event_json(const Event& event) {
  return std::visit([](const auto& e) { return fields(e); }, event);
}

}  // namespace lockstep::shell
