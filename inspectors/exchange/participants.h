// Knows which ranks there are. Inspectors also work in a process without groups, which is rank 0 of one.
#pragma once
#include <cstddef>
#include <optional>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// Returns the calling rank.
int own_rank();
/// Returns the ranks that are alive.
RankSet live_ranks();
/// Returns how many other ranks the session has, where this one has left their group; nothing where it has not.
std::optional<int> ranks_out_of_reach();
/// Returns the position of `rank` among `ranks`, which contain it.
size_t rank_index_of(const RankSet& ranks, int rank);

}  // namespace lockstep::inspect
