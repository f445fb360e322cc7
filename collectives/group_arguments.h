// Resolves the group and the rank that the arguments of a collective mean. Every error names the function, the
// argument, and what to do.
#pragma once
#include "collectives/rank_context.h"

namespace lockstep::dist {

/// Returns the group of a collective. This rank must be in it.
GroupEntry require_member(const char* function, const Group& group);

/// Returns the group rank of `rank`, which is of the default group. `name` is "src" or "dst".
int require_rank(const char* function, const char* name, int rank, const GroupEntry& entry);
/// Does the same for a rank that may count in the group itself (dist::group_src).
int require_rank(const char* function, const char* name, const Rank& rank, const GroupEntry& entry);
/// Returns the rank in the default group of rank `session_rank` of the session; -1 if it is not in the group.
int default_rank_of(int session_rank);

}  // namespace lockstep::dist
