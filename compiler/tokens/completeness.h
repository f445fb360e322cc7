// Is a text a complete cell, or does it continue on the next line? Judged by its characters alone: brackets, quotes,
// comments, #if, a backslash at the end.
#pragma once
#include <string_view>

#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// "incomplete" while something is open; "invalid" when a bracket closes what is not open. A complete text may have
/// other errors, which compiling it reports.
protocol::Completeness completeness(std::string_view text);

}  // namespace lockstep::compiler
