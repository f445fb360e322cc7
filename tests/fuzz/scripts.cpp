// Scripts, notebooks and cells.
#include "shell/scripts/script.h"

#include <string>

#include "protocol/error.h"
#include "shell/cells/cell_result.h"
#include "shell/scripts/code_scanner.h"
#include "shell/scripts/completeness.h"
#include "shell/scripts/cpp_items.h"
#include "shell/scripts/details.h"
#include "shell/scripts/editor_text.h"
#include "shell/scripts/magic_parser.h"
#include "shell/scripts/parameters.h"
#include "shell/scripts/python_cell.h"
#include "tests/fuzz/fuzz_target.h"

namespace lockstep::fuzz {
namespace {

/// Some magics of each form; the real ones do things.
const shell::MagicRegistry& magics() {
  static const shell::MagicRegistry registry = [] {
    shell::MagicRegistry made;
    const auto line = [](shell::MagicCall&) -> shell::CellOutcome { throw UsageError("not called"); };
    const auto cell = [](shell::MagicCall&, shell::CellSettings&) {};
    made.add({.name = "time", .summary = "both", .line = line, .cell = cell});
    made.add({.name = "rank", .summary = "both, with ranks", .line = line, .cell = cell});
    made.add({.name = "who", .summary = "a line", .line = line});
    made.add({.name = "writefile", .summary = "any text", .cell = cell, .takes_text = true});
    for (const char* name : {"?", "??", "!", "help"}) made.add({.name = name, .summary = "its own form", .line = line});
    return made;
  }();
  return registry;
}

void take_apart(const std::string& text, shell::Language language) {
  try {
    if (language == shell::Language::cpp)
      shell::parse_cell(text, magics(), [](const std::string&) { return false; });
    else
      shell::parse_python_cell(text, magics());
  } catch (const UsageError&) {
  }
}

void use(const std::vector<shell::ScriptCell>& cells, shell::Language language) {
  for (const shell::ScriptCell& cell : cells) {
    if (!cell.markdown) take_apart(cell.text, language);
    shell::only_looks(cell.text);
    shell::with_folded_details(cell.text, "▸");
    shell::with_open_details(cell.text, "▸");
  }
  shell::with_parameters(cells, {{"epochs", "3"}}, language);
  const std::string text = shell::format_script(cells, language);
  const auto again = shell::parse_script(text, "again", language);
  check(shell::format_script(again, language) == text, "a script that was written reads as what was written");
}

void script(std::string_view bytes, shell::Language language) {
  try {
    use(shell::parse_script(bytes, "script", language), language);
  } catch (const UsageError&) {
  }
}

void cpp_script(std::string_view bytes) {
  script(bytes, shell::Language::cpp);
  if (!shell::is_session_script(bytes)) return;
  const shell::EditorText text(bytes, magics());
  for (const shell::EditorPosition at : {shell::EditorPosition{0, 0}, {3, 7}, {1000, 1000}}) {
    text.to_file(at);
    text.to_script(at);
  }
}

void python_script(std::string_view bytes) { script(bytes, shell::Language::python); }

void notebook(std::string_view bytes) {
  const shell::Language language = shell::language_of_notebook(bytes);
  try {
    use(shell::parse_notebook(bytes, "notebook", language), language);
  } catch (const UsageError&) {
  }
}

/// What is typed at a prompt: of either language, while it is typed and when it is complete.
void cell(std::string_view bytes) {
  const std::string text(bytes);
  shell::completeness(text);
  shell::scan_python_completeness(text);
  shell::open_call(text);
  shell::asks_to_leave(text);
  shell::is_cpp_cell(text);
  std::vector<shell::CppToken> tokens;
  shell::CppLexer lexer(text);
  while (auto token = lexer.next()) {
    check(token->end() <= text.size() && !token->text.empty(), "a token is a part of the text");
    tokens.push_back(*token);
  }
  shell::CppItems items(tokens, 0, tokens.size());
  for (size_t end = 0; const auto item = items.next(); end = item->end)
    check(item->begin >= end && item->end > item->begin && item->end <= tokens.size(), "items follow one another");
  take_apart(text, shell::Language::cpp);
  take_apart(text, shell::Language::python);
}

/// The line of a magic behind its name, with options and words of all kinds.
void magic_arguments(std::string_view bytes) {
  static const shell::MagicDescription kTakes = {{"SPEC"},   {"[on|off|FILE]"}, {"EXPR..."}, {"-n,--last K"},
                                                 {"--self"}, {"--rtol R"},      {"--all"}};
  const std::string text(bytes);
  try {
    const shell::MagicArguments given(kTakes, "usage", text);
    given.value("--rtol");
    given.count("--last");
  } catch (const UsageError&) {
  }
  try {
    shell::split_arguments(text);
  } catch (const UsageError&) {
  }
  shell::split_spec(text);
}

const AddTarget kCppScript("cpp_script", cpp_script), kPythonScript("python_script", python_script),
    kNotebook("notebook", notebook), kCell("cell", cell), kMagicArguments("magic_arguments", magic_arguments);

}  // namespace
}  // namespace lockstep::fuzz
