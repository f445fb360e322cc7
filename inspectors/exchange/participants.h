// The ranks that there are. Inspectors also work in a process without groups, which is rank 0 of one.
#pragma once
#include <cstddef>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// The calling rank.
int own_rank();
/// The ranks that are alive.
RankSet live_ranks();
/// The position of `rank` among `ranks`, which contain it.
size_t rank_index_of(const RankSet& ranks, int rank);

}  // namespace lockstep::inspect
