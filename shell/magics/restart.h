// Starts ranks again in the places of dead ones, for %restart and for %dist_init on a session that runs.
#pragma once
#include <optional>

#include "protocol/rank_set.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Returns the rank that --from names; nothing where it was not given. Throws UsageError where it is
/// dead, or one of `to`.
std::optional<int> source_of(MagicCall& call, const RankSet& to);

/// Starts these dead ranks again and reports on them; `from`: copies the model to them from that rank.
/// Throws UsageError, and Error where one of them does not come back.
CellOutcome start_again(MagicCall& call, const RankSet& ranks, const std::optional<int>& from);

}  // namespace lockstep::shell
