#include "shell/events/event_reader.h"

#include <limits>
#include <stdexcept>

#include "protocol/json_fields.h"
#include "shell/events/base64.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

/// Numbers that JSON lacks are words there.
json as_number(json value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return kInfinity;
  if (value == "-inf") return -kInfinity;
  return value;
}

template <typename T>
std::map<int, T> by_rank(const json& object) {
  std::map<int, T> values;
  for (const auto& [rank, value] : object.items()) values[std::stoi(rank)] = as_number(value).template get<T>();
  return values;
}

std::string text_of(const json& event, const char* name) {
  const auto found = event.find(name);
  return found == event.end() || found->is_null() ? "" : found->get<std::string>();
}

Event session(const json& e) {
  const auto versions = e.at("versions").get<std::map<std::string, std::string>>();
  return SessionEvent{.id = e.at("id"),
                      .ranks = e.at("ranks"),
                      .backend = e.at("backend"),
                      .devices = by_rank<std::string>(e.at("devices")),
                      .versions = versions,
                      .is_asked = e.value("asked", false),
                      .is_python = versions.contains("python"),
                      .is_job = e.value("job", false),
                      .has_grown = e.value("grown", false)};
}

Event cell(const json& e) {
  return CellEvent{.cell = e.at("cell"),
                   .title = e.at("title"),
                   .ranks = e.at("ranks"),
                   .status = e.at("status"),
                   .rank_status = by_rank<CellStatus>(e.at("rank_status")),
                   .run_ms = by_rank<double>(e.at("run_ms")),
                   .compile_ms = as_number(e.at("compile_ms")).get<double>(),
                   .file = e.at("file").get<std::optional<std::string>>(),
                   .line = e.at("line").get<std::optional<int>>(),
                   .expected = e.at("expected").get<std::optional<bool>>()};
}

Event output(const json& e) {
  return OutputEvent{
      e.at("cell"), e.at("ranks"), e.at("stream"),
      e.contains("base64") ? from_base64(e["base64"].get<std::string>()) : e.at("text").get<std::string>()};
}

Event value(const json& e) {
  return ValueEvent{.cell = e.at("cell"),
                    .ranks = e.at("ranks"),
                    .text = e.at("text"),
                    .data = e.at("data"),
                    .label = text_of(e, "label"),
                    .number = e.value("number", int64_t{0})};
}

Event error(const json& e) {
  ErrorEvent event{.cell = e.at("cell"),
                   .ranks = e.at("ranks"),
                   .type = e.at("type"),
                   .message = e.at("message"),
                   .where = e.at("where").get<std::optional<std::string>>(),
                   .root_cause = e.at("root_cause"),
                   .stack = e.at("stack"),
                   .traceback = text_of(e, "traceback"),
                   .others_run = e.value("others_run", false)};
  for (const json& each : e.value("diagnostics", json::array()))
    event.diagnostics.push_back(
        {each.at("severity"), each.at("line"), each.at("column"), each.at("file"), each.at("message")});
  return event;
}

Event finding(json e) {
  for (json& tensor : e.at("tensors")) {
    for (const char* name : {"max_abs_diff", "max_ulp"}) tensor[name] = as_number(tensor.value(name, json()));
    if (tensor.contains("norms") && tensor["norms"].is_object())
      for (json& norm : tensor["norms"]) norm = as_number(norm);
  }
  return FindingEvent{e.get<Finding>()};
}

Event rank(const json& e) { return RankEvent{e.at("rank"), e.at("state"), e.at("message")}; }

Event message(const json& e) { return MessageEvent{e.at("cell"), e.at("text"), e.at("data"), e.value("help", false)}; }

Event progress(const json& e) {
  return ProgressEvent{.cell = e.at("cell"),
                       .loop = e.at("loop"),
                       .parent = e.at("parent").is_null() ? 0 : e.at("parent").get<int64_t>(),
                       .label = e.at("label"),
                       .line = e.at("line"),
                       .ranks = e.at("ranks"),
                       .done = by_rank<int64_t>(e.at("done")),
                       .total = by_rank<int64_t>(e.at("total")),
                       .elapsed_s = by_rank<double>(e.at("elapsed_s")),
                       .state = e.at("state")};
}

Event page(const json& e) { return PageEvent{e.at("cell"), e.at("text")}; }
Event markdown(const json& e) { return MarkdownEvent{e.at("text")}; }
Event end(const json& e) { return EndEvent{e.at("exit_code"), e.at("counts")}; }

constexpr std::pair<const char*, Event (*)(const json&)> kReaders[] = {
    {"session", session},   {"cell", cell},       {"output", output},
    {"value", value},       {"error", error},     {"finding", [](const json& e) { return finding(e); }},
    {"rank", rank},         {"message", message}, {"markdown", markdown},
    {"progress", progress}, {"page", page},       {"end", end}};

}  // namespace

std::optional<Event> read_event(const json& event) {
  if (!event.is_object() || !event.contains("event")) return std::nullopt;
  try {
    for (const auto& [name, read] : kReaders)
      if (event["event"] == name) return read(event);
  } catch (const json::exception&) {  // of another schema, or not written by a session
  } catch (const std::logic_error&) {  // a rank that is no number, bytes that are no base64
  }
  return std::nullopt;
}

}  // namespace lockstep::shell
