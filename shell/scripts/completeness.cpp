#include "shell/scripts/completeness.h"

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

protocol::Completeness scan_completeness(std::string_view text) {
  CodeScanner scanner;
  for (const std::string_view line : lines_of(text)) scanner.take(line);
  return {scanner.unfinished() ? TextStatus::incomplete : TextStatus::complete, scanner.depth()};
}

bool asks_to_leave(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n"), end = text.find_last_not_of(" \t\n;");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return false;
  const std::string_view word = text.substr(begin, end + 1 - begin);
  return word == "exit" || word == "quit" || word == "exit()" || word == "quit()";
}

}  // namespace lockstep::shell
