// Which cells of a session %history and %save mean: `7`, `3-7`, or the last K.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Entries whose numbers are in `range` (nothing: all), at most the `last` newest of them, oldest first. Throws
/// UsageError for a bad range.
std::vector<const HistoryEntry*> select_history(const std::vector<HistoryEntry>& history,
                                                const std::optional<std::string>& range,
                                                const std::optional<std::string>& last);

}  // namespace lockstep::shell
