// Reads events back from their JSON form (event.h), to draw them again.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "shell/events/event.h"

namespace lockstep::shell {

/// Returns nothing for an event that this version does not know, or whose fields are not as docs/events.md has them.
std::optional<Event> read_event(const nlohmann::json& json);

}  // namespace lockstep::shell
