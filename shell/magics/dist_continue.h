// Lets the ranks that live go on as the default group, for %dist_continue and for %dist_init on a session that runs.
#pragma once
#include <string>

#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Throws UsageError, for the magic `name`, where ranks can't connect again with others than before.
void check_can_continue(const SessionCore& session, const std::string& name);

/// Makes the ranks that live the default group and reports it. Throws UsageError.
CellOutcome continue_without_the_dead(MagicCall& call);

}  // namespace lockstep::shell
