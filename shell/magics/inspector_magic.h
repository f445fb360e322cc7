// What magics that turn into a call of an inspector share: which ranks run the call, and how values are spelt in C++.
#pragma once
#include <optional>
#include <string>

#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Of such a cell: all live ranks, or those of --ranks, also after %rank. Starts the session where it has not been.
CellSettings inspector_settings(MagicCall& call, const std::optional<std::string>& spec);

/// Runs the call. With `shows`, its value is shown as a cell's last expression is.
CellOutcome run_inspector(MagicCall& call, const std::string& code, const CellSettings& settings, bool shows = false);

// As C++ spells them.
std::string cxx_string(const std::string& text);
/// `lockstep::RankSet{0, 2}`
std::string cxx_ranks(const RankSet& ranks);
/// A number that is finite and at least `least`. Throws UsageError that names `option` and says `what` it takes.
std::string cxx_number(const std::string& word, const char* option, double least, const char* what);

}  // namespace lockstep::shell
