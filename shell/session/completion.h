// Finds what may stand at a place in a cell that is being typed: C++ (asked of the compiler), magics with their
// options, rank sets and choices, and paths. Front ends draw it as they like; all of them offer the same.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "shell/scripts/completeness.h"

namespace lockstep::shell {

class SessionCore;

/// Returns completions at byte `offset` of `text`, a cell as typed, best first. For C++ starts the session, or over a
/// Python job the compiler. Throws ChannelError when the compiler has ended.
protocol::Completions complete_cell(SessionCore& session, const std::string& text, int64_t offset);

/// Whether `text` is a whole cell. Starts nothing. A rank judges Python.
Completeness completeness_of_cell(SessionCore& session, const std::string& text);

/// Returns the overloads of the call whose arguments stand at `offset`; none before the session has started.
std::vector<protocol::Signature> signatures_in_cell(SessionCore& session, const std::string& text, int64_t offset);

}  // namespace lockstep::shell
