// Which group and which rank the arguments of a collective mean. Every error names the function, the argument, and what
// to do.
#pragma once
#include "collectives/rank_context.h"

namespace lockstep::dist {

/// The group of a collective: this rank must be in it.
GroupEntry require_member(const char* function, const Group& group);

/// Group rank of `rank` (of the default group). `name`: "src" or "dst".
int require_rank(const char* function, const char* name, int rank, const GroupEntry& entry);
/// The same for a rank that may count in the group itself (dist::group_src).
int require_rank(const char* function, const char* name, const Rank& rank, const GroupEntry& entry);

}  // namespace lockstep::dist
