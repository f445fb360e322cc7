// Is a text a whole cell, or is more to come? By its characters alone: brackets, quotes, comments, #if, a backslash at
// the end.
#pragma once
#include <string_view>

#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

/// "incomplete" while something is open; "invalid" when a bracket closes what is not open. What else may be wrong with
/// a complete text, the compiler says.
protocol::Completeness completeness(std::string_view text);

}  // namespace lockstep::compiler
