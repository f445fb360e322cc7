#include "shell/scripts/editor_text.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "protocol/error.h"
#include "shell/scripts/cpp_items.h"
#include "shell/scripts/cpp_lexer.h"
#include "shell/scripts/magic_parser.h"
#include "shell/scripts/script.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Says where the text of a cell of a script begins and ends.
struct CellRange {
  size_t begin = 0, end = 0;
};

std::vector<CellRange> cells_of(std::string_view text) {
  std::vector<CellRange> cells;
  bool is_code = true;
  size_t begin = 0;
  for (const std::string_view line : lines_of(text)) {
    const std::optional<std::string_view> marker = marker_of(line, Language::cpp);
    if (!marker) continue;
    if (is_code) cells.push_back({begin, offset_of(line, text)});
    begin = std::min(offset_of(line, text) + line.size() + 1, text.size());
    is_code = begins_code(*marker);
  }
  if (is_code) cells.push_back({begin, text.size()});
  return cells;
}

/// Returns the text with blanks in place of everything but C++.
std::string code_alone(std::string_view text, const std::vector<CellRange>& cells, const MagicRegistry& registry) {
  std::string code(text.size(), ' ');
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') code[i] = '\n';
  for (const CellRange& cell : cells) {
    const std::string_view of_cell = text.substr(cell.begin, cell.end - cell.begin);
    try {
      for (const CellPart& part : parse_cell(of_cell, registry).parts) {
        if (!part.is_code) continue;
        size_t at = cell.begin;  // the part has the cell's lines, blank where it has no code
        for (const std::string_view line : lines_of(part.code)) {
          if (!line.empty()) code.replace(at, line.size(), line);
          at = std::min(text.find('\n', at), text.size() - 1) + 1;
        }
      }
    } catch (const UsageError&) {  // it is being typed: all but the lines that may be magics
      size_t at = cell.begin;
      for (const std::string_view line : lines_of(of_cell)) {
        const size_t first = line.find_first_not_of(" \t");
        if (first != std::string_view::npos && line[first] != '%' && line[first] != '!')
          code.replace(at, line.size(), line);
        at += line.size() + 1;
      }
    }
  }
  return code;
}

int utf16_units(std::string_view text) {
  int units = 0;
  for (const char c : text)
    if (!is_continuation_byte(c)) units += character_length(c) == 4 ? 2 : 1;
  return units;
}

}  // namespace

bool is_session_script(std::string_view text) {
  return std::ranges::any_of(lines_of(text),
                             [](std::string_view line) { return marker_of(line, Language::cpp).has_value(); });
}

EditorText::EditorText(std::string_view script, const MagicRegistry& registry) {
  const std::vector<CellRange> cells = cells_of(script);
  std::string code = code_alone(script, cells, registry);
  std::vector<size_t> includes;  // where their lines begin
  std::vector<CppToken> tokens;  // without directives and comments
  CppLexer lexer(code);
  for (std::optional<CppToken> before, token; (token = lexer.next()); before = token) {
    if (before && before->kind == CppToken::hash && token->text.starts_with("include"))
      includes.push_back(before->begin);
    if (token->kind != CppToken::comment && !token->in_directive) tokens.push_back(*token);
  }

  std::map<size_t, std::pair<std::string, bool>> inserted;  // before the byte; whether it opens what follows
  const auto insert = [&](size_t at, const std::string& text, bool opens = false) {
    inserted[at].first += text;
    inserted[at].second |= opens;
  };
  const auto insert_before = [&](size_t at, const std::string& text) { insert(at, text, /*opens=*/true); };
  int spaces = 0, functions = 0;
  const auto open_space = [](int i) { return "namespace lockstep_script_" + std::to_string(i) + " { "; };
  const auto all_spaces = [&](bool open) {
    std::string text;
    for (int i = 0; i <= spaces; ++i) text += open ? open_space(i) : "}";
    return text;
  };
  struct Known {
    std::optional<std::string> parameters;
    int space;  // its namespace
  };
  std::multimap<std::string, Known> known;
  const auto is_defined = [&](const DefinedName& name) {
    const auto [begin, end] = known.equal_range(name.name);
    return std::any_of(begin, end, [&](const auto& each) {
      return !each.second.parameters || !name.parameters || each.second.parameters == name.parameters;
    });
  };
  // An overload does not hide those of the namespaces around it.
  const auto overloads = [&](const DefinedName& name) {
    std::string text;
    std::set<int> outer;
    const auto [begin, end] = known.equal_range(name.name);
    for (auto each = begin; each != end; ++each)
      if (name.parameters && each->second.space < spaces) outer.insert(each->second.space);
    if (!outer.empty()) {  // those of the innermost one, which has the others
      text = "using ";
      for (int i = 0; i <= *outer.rbegin(); ++i) text += "lockstep_script_" + std::to_string(i) + "::";
      text += name.name + "; ";
    }
    return text;
  };
  size_t token = 0;
  for (const CellRange& cell : cells) {
    const size_t first = token;
    while (token < tokens.size() && tokens[token].begin < cell.end) ++token;
    CppItems items(tokens, first, token);
    bool in_function = false;
    while (const auto item = items.next()) {
      const size_t begin = tokens[item->begin].begin, end = tokens[item->end - 1].end();
      if (!item->declares) {
        if (!in_function) insert_before(begin, "void lockstep_statements_" + std::to_string(++functions) + "() { ");
        in_function = true;
        continue;
      }
      if (std::exchange(in_function, false)) insert(tokens[item->begin - 1].end(), " ;}");
      if (item->is_include_like) {
        insert_before(begin, all_spaces(false) + " ");
        insert(end, " " + all_spaces(true));
        continue;
      }
      if (std::any_of(item->names.begin(), item->names.end(), is_defined))
        insert_before(begin, open_space(++spaces));
      else
        for (const DefinedName& name : item->names) insert_before(begin, overloads(name));
      for (const DefinedName& name : item->names) known.emplace(name.name, Known{name.parameters, spaces});
      // Clang refuses a lambda that captures by default outside of a function. Names of cells need no capture.
      int braces = 0;
      for (size_t i = item->begin; i + 2 < item->end; ++i) {
        if (tokens[i].text == "{") ++braces;
        if (tokens[i].text == "}") --braces;
        if (braces > 0 || tokens[i].text != "[" || !is_any_of(tokens[i + 1].text, {"&", "="})) continue;
        if (tokens[i + 2].text == "]" || tokens[i + 2].text == ",") code[tokens[i + 1].begin] = ' ';
        if (tokens[i + 2].text == ",") code[tokens[i + 2].begin] = ' ';
      }
    }
    if (in_function) insert(tokens[token - 1].end(), " ;}");
    // The value of a last expression and an item that is being typed end with their cell.
  }

  // Line by line, with the insertions and where they are.
  std::vector<std::string> include_lines;
  for (const size_t at : includes) {
    const size_t end = std::min(code.find('\n', at), code.size());
    include_lines.push_back(code.substr(at, end - at));
    included_at_.push_back(static_cast<int>(std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n')));
  }
  for (const std::string& line : include_lines) text_ += line + "\n";
  text_ += open_space(0) + "\n";
  included_at_.push_back(0);
  int line = 0;
  size_t line_begin = 0, done = 0;
  const auto copy_to = [&](size_t end) {
    for (; done < end; ++done) {
      text_ += code[done];
      if (code[done] != '\n') continue;
      ++line;
      line_begin = done + 1;
    }
  };
  for (const auto& [at, insertion] : inserted) {
    const auto& [text, opens] = insertion;
    copy_to(at);
    text_ += text;
    insertions_[line].push_back({utf16_units(std::string_view(code).substr(line_begin, at - line_begin)),
                                 static_cast<int>(text.size()), opens});
  }
  copy_to(code.size());
  text_ += "\n" + all_spaces(false) + "\n";
}

EditorPosition EditorText::to_file(EditorPosition in_script) const {
  EditorPosition result{in_script.line + static_cast<int>(included_at_.size()), in_script.character};
  if (const auto found = insertions_.find(in_script.line); found != insertions_.end())
    for (const Insertion& each : found->second)
      if (each.character < in_script.character || (each.character == in_script.character && each.opens))
        result.character += each.length;
  return result;
}

EditorPosition EditorText::to_script(EditorPosition in_file) const {
  const int before = static_cast<int>(included_at_.size());
  if (in_file.line < before) return {included_at_[static_cast<size_t>(std::max(in_file.line, 0))], 0};
  EditorPosition result{in_file.line - before, in_file.character};
  if (const auto found = insertions_.find(result.line); found != insertions_.end())
    for (const Insertion& each : found->second) {
      if (result.character <= each.character) break;
      result.character = std::max(each.character, result.character - each.length);
    }
  return result;
}

}  // namespace lockstep::shell
