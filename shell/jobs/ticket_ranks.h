// Ranks of a session that a launcher brings: each of its processes is a relay that comes with the session's ticket
// (shell/link/), and starts one rank.
#pragma once
#include <functional>
#include <string>

#include "shell/processes/event_loop.h"
#include "shell/processes/rank_place.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

/// Writes the file options.ticket, or has options.launch start the relays with one. Waits until all ranks have come, 10
/// minutes or --start-timeout at most: as many as -n says, or else the launcher of the first. Calls `says` with those
/// that have come. Places have the numbers that the launcher gives its processes. Throws StartError that names the
/// ranks which have not come. `interrupted` ends the wait.
RankPlaces places_by_ticket(EventLoop& loop, const SessionOptions& options, const std::string& hub,
                            const bool& interrupted, const std::function<void(const std::string&)>& says);

}  // namespace lockstep::shell
