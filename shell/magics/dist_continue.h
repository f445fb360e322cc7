// Lets the ranks that live go on as the default group, for %dist_continue and for %dist_init on a session that runs.
#pragma once
#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Reports on it, also where they are it already.
CellOutcome continue_without_the_dead(MagicCall& call);

}  // namespace lockstep::shell
