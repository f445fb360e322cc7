// EXPR?: what a name or an expression is.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"
#include "shell/text/table.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

std::vector<std::string> known_names(SessionCore& session) {
  std::vector<std::string> names;
  const auto response = session.ask(protocol::ListNames{});
  if (const auto* list = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : list->names) names.push_back(name.name);
  return names;
}

std::string inset(const std::string& text) {
  std::string result;
  for (const std::string_view line : lines_of(text))
    result += (result.empty() ? "" : "\n             ") + std::string(line);
  return result;
}

CellOutcome inspect(MagicCall& call) {
  const std::string& expression = call.arguments;
  const auto response = call.session.ask(protocol::Inspect{expression, call.session.target_ranks()});
  const auto* answer = std::get_if<protocol::Inspection>(&response);
  if (!answer || !answer->found)
    throw UsageError("'" + expression + "' is not known" + did_you_mean(expression, known_names(call.session)) +
                     "; %who lists the names of cells");
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) rows.push_back({what, inset(value)});
  };
  add("type", answer->type);
  add("declaration", answer->declaration);
  add("comment", answer->comment);
  add("defined in", answer->cell ? "cell " + std::to_string(*answer->cell) : "");
  call.session.message(
      table(rows), nlohmann::json{{"expression", expression},
                                  {"type", answer->type},
                                  {"declaration", answer->declaration},
                                  {"comment", answer->comment},
                                  {"cell", answer->cell ? nlohmann::json(*answer->cell) : nlohmann::json(nullptr)}});
  return {};
}

const RegisterMagic kInspect({.name = "?",
                              .usage = "EXPR?",
                              .summary = "what a name or an expression is: type, declaration, comment, cell",
                              .help = "Nothing runs. %NAME? is the help of a magic.",
                              .line = inspect,
                              .cell = {}});

}  // namespace
}  // namespace lockstep::shell
