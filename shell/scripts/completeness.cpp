#include "shell/scripts/completeness.h"

#include <algorithm>

#include "shell/scripts/code_scanner.h"
#include "shell/text/text.h"

namespace lockstep::shell {

CellMagics cell_magics_of(std::string_view text) {
  CellMagics found = CellMagics::none;
  for (std::string_view line : lines_of(text)) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line.substr(begin).starts_with("//")) continue;
    if (!line.substr(begin).starts_with("%%"))
      return found == CellMagics::none ? CellMagics::none : CellMagics::with_body;
    found = CellMagics::alone;
  }
  return found;
}

Completeness completeness(std::string_view text) {
  CodeScanner scanner(text);
  int conditions = 0;  // #if without its #endif
  bool is_open = false, names_directive = false;
  for (const std::string_view line : lines_of(text)) {
    const size_t begin = offset_of(line, text), end = begin + line.size();
    const size_t first = std::min(line.find_first_not_of(" \t"), line.size());
    if (line.substr(first).starts_with('%') && scanner.may_begin(begin)) {
      scanner.skip_magic(end);
      continue;
    }
    while (const auto token = scanner.next(end)) {
      is_open |= token->goes_on();
      if (scanner.is_mismatched()) return {TextStatus::invalid, 0};
      if (names_directive && token->text.starts_with("if")) ++conditions;
      if (names_directive && token->text == "endif" && conditions > 0) --conditions;
      if (token->kind != CppToken::comment) names_directive = token->kind == CppToken::hash;
    }
  }
  is_open |= trimmed(text.substr(text.rfind('\n') + 1)).ends_with('\\');  // an empty line is joined, and ends it
  if (is_open || scanner.depth() > 0 || conditions > 0) return {TextStatus::incomplete, scanner.depth()};
  return {TextStatus::complete, 0};
}

bool asks_to_leave(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n;");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return false;
  const std::string_view word = text.substr(begin, end + 1 - begin);
  return word == "exit" || word == "quit" || word == "exit()" || word == "quit()";
}

}  // namespace lockstep::shell
