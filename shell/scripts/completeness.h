// Whether a text is a complete cell, or continues on the next line. Judged by its tokens alone: brackets, quotes,
// comments, #if, a backslash at the end.
#pragma once
#include <string_view>

#include "protocol/status.h"

namespace lockstep::shell {

enum class CellMagics { none, alone, with_body };

/// Says whether the cell begins with `%%` lines, and whether there is anything after them yet.
CellMagics cell_magics_of(std::string_view text);

struct Completeness {
  TextStatus status = TextStatus::complete;
  int indent = 0;  // open brackets at the end, for the continuation prompt
};

/// Judges a cell in C++: "incomplete" while something is open, "invalid" when a bracket closes what is not open. A complete
/// text may have other errors, which compiling it reports. Lines of magics are complete.
Completeness completeness(std::string_view text);

/// Whether it is `exit` or `quit`, with or without parentheses and semicolon: the end of the session, as in IPython.
bool asks_to_leave(std::string_view text);

}  // namespace lockstep::shell
