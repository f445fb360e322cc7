// Answers requests that ask about code and run none: contents in, contents of the reply out. What the session can't
// answer (the compiler has ended, the ranks can't start) is unknown: a cell that needs it reports the error.
#pragma once
#include <nlohmann/json.hpp>

#include "shell/session/session.h"

namespace lockstep::shell::jupyter {

nlohmann::json kernel_info(Language language);

/// Returns the names that could stand at the cursor, with their types and signatures.
nlohmann::json complete(Session& session, const nlohmann::json& content);

/// Returns a tooltip: what a name or a magic is, and within the arguments of a call its overloads.
nlohmann::json inspect(Session& session, const nlohmann::json& content);

/// Says whether Enter runs the cell, and how deep the next line is indented.
nlohmann::json is_complete(Session& session, const nlohmann::json& content);

}  // namespace lockstep::shell::jupyter
