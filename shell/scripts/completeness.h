// Whether a text is a complete cell, as far as that can be seen without a compiler.
#pragma once
#include <string_view>

#include "protocol/compiler_messages.h"

namespace lockstep::shell {

enum class CellMagics { none, alone, with_body };

/// Does the cell begin with `%%` lines, and is there anything after them yet?
CellMagics cell_magics_of(std::string_view text);

/// What the shell's own scanner says of brackets, quotes and comments. For as long as there is no session: a new line
/// must not wait for the start of one.
protocol::Completeness scan_completeness(std::string_view text);

/// `exit`, `quit`, with or without parentheses and semicolon: the end of the session, as in Python and IPython.
bool asks_to_leave(std::string_view text);

}  // namespace lockstep::shell
