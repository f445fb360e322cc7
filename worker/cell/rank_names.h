// Sets the names by which cells know their rank.
#pragma once
#include "worker/process/configuration.h"

namespace lockstep::worker {

/// Gives `rank`, `world_size`, `device` and the others of worker/cell/cell.h their values. Called before a cell is loaded,
/// and again where they have changed since.
void name_rank(const Configuration& configuration);

/// Gives this rank another number in the default group, which has `world_size` ranks. On the run thread, between cells.
void set_rank_number(int rank, int world_size);

}  // namespace lockstep::worker
