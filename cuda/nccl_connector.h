// Connects process groups on NCCL, as liblockstep makes them (collectives/backend/backend.h).
#pragma once
#include "collectives/backend/backend.h"

namespace lockstep::cuda {

/// The connector is for the calling thread's current GPU.
std::unique_ptr<dist::BackendConnector> make_nccl_connector(const dist::GroupDescription& group);

}  // namespace lockstep::cuda
