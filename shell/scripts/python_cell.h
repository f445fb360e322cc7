// Takes a Python cell's text apart, as magic_parser.h does for C++: cell magics first, after blank lines and `#`
// comments; line magics where a statement may begin, in the first column, also as `# %name` where the name is a known
// magic. `name?` and `!command` are as there.
//
// At a breakpoint of a job, a cell that is one of pdb's words alone is the magic of that name: continue, where, up, down,
// detach. `continue` is so on a line of its own, too.
#pragma once
#include <string_view>

#include "shell/scripts/completeness.h"
#include "shell/scripts/magic_parser.h"

namespace lockstep::shell {

/// Throws UsageError as parse_cell does.
ParsedCell parse_python_cell(std::string_view text, const MagicRegistry& registry, bool at_breakpoint = true);

/// Whether the cell's first magics say `%%cpp`.
bool is_cpp_cell(std::string_view text);

/// Returns what can be seen of brackets, quotes and blocks without an interpreter.
Completeness scan_python_completeness(std::string_view text);

}  // namespace lockstep::shell
