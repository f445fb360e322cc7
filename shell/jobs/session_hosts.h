// The machines of a session that has several.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shell/hosts/host.h"
#include "shell/jobs/remote_host.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/rank_place.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

/// Chooses the machines of the session where its user has not: within a job of Slurm its nodes, else this one. Throws
/// UsageError for options that contradict one another.
void choose_hosts(SessionOptions& options);

/// Returns a message that names hosts whose processors are not of one kind; empty: all that are known are.
std::string differing_processors(const std::vector<const RemoteHost*>& machines);

/// Starts a relay on each of options.hosts and waits until all answer, 30 s or --start-timeout at most, or until
/// `interrupted`. Ranks connect through the relays to the hub of the path `hub`. Returns how the ranks of `options` are
/// spread: evenly, in the order of the hosts; without a number of ranks, one for each GPU of a host, or one on each
/// host where none has GPUs. Calls `says` with the hosts that have not answered after 8 s. Throws StartError that names
/// each host which does not answer, and UsageError.
RankPlaces places_on_hosts(EventLoop& loop, const SessionOptions& options, const std::string& hub,
                           const bool& interrupted, const std::function<void(const std::string&)>& says);

}  // namespace lockstep::shell
