// Shows which variables hold memory, after a cell that ran out of it.
#pragma once
#include <string>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::shell {

class SessionCore;

/// Returns the variables of cells that all of `ranks` see.
std::vector<std::string> variables_of(SessionCore& session, const RankSet& ranks);

/// Returns `__lockstep::named_memory("net", net), …`, for calls of inspect::memory and its like.
std::string named_memory_arguments(const std::vector<std::string>& expressions);

/// Shows on `ranks`, in whose part of the running cell an allocation has failed, what holds memory on their devices.
/// Does nothing where the session has no compiler, or where the ranks are busy or dead.
void explain_out_of_memory(SessionCore& session, const RankSet& ranks);

}  // namespace lockstep::shell
