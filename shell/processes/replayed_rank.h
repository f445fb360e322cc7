// The place of a session that runs one rank of a recording again: that rank's process is here, the others are nowhere
// (docs/replay.md).
#pragma once
#include <memory>

#include "shell/processes/event_loop.h"
#include "shell/processes/rank_place.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"
#include "shell/processes/session_plan.h"

namespace lockstep::shell {

/// `plan` is that of a session of one rank.
std::unique_ptr<RankPlace> replayed_rank(EventLoop& loop, const ReplayedRank& which, SessionPlan plan,
                                         SessionDirectory& directory);

}  // namespace lockstep::shell
