#include "shell/scripts/parameters.h"

#include <algorithm>

#include "shell/scripts/cpp_lexer.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Whether `code` has the name where a variable is declared: before `=`, `{`, `(`, `;` or `,`.
bool declares(std::string_view code, std::string_view name) {
  CppLexer lexer(code);
  bool is_named = false;
  while (const auto token = lexer.next()) {
    if (token->kind == CppToken::comment) continue;
    if (is_named && is_any_of(token->text, {"=", "{", "(", ";", ","}) && !code.substr(token->end()).starts_with('='))
      return true;
    is_named = token->is_word() && token->text == name;
  }
  return false;
}

}  // namespace

bool has_tag(const ScriptCell& cell, const std::string& name) {
  return std::any_of(cell.tags.begin(), cell.tags.end(), [&](const Tag& tag) { return tag.name == name; });
}

std::vector<ScriptCell> with_parameters(std::vector<ScriptCell> cells,
                                        const std::map<std::string, std::string>& arguments, Language language) {
  const bool is_python = language == Language::python;
  std::vector<ScriptCell> result;
  for (ScriptCell& cell : cells) {
    if (has_tag(cell, "injected-parameters")) continue;
    std::string text;
    if (has_tag(cell, "parameters") && !cell.markdown)
      for (const auto& [name, value] : arguments)
        if (is_name(name) && declares(cell.text, name)) {
          const bool printable = std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c != '\\'; });
          text += (text.empty() ? "" : "\n") + name + " = arg(\"" + name + "\", " + name + (is_python ? ")" : ");") +
                  (printable ? (is_python ? "  # " : "  // ") + value : "");
        }
    result.push_back(std::move(cell));
    if (text.empty()) continue;
    ScriptCell injected;
    injected.title = "parameters of this run";
    injected.tags = {{"injected-parameters", ""}};
    injected.text = std::move(text);
    injected.line = result.back().line;
    result.push_back(std::move(injected));
  }
  return result;
}

}  // namespace lockstep::shell
