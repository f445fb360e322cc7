// Makes groups of ranks on one machine that share memory (shared_memory_backend.h). Where one of them can't map it, all
// use Gloo.
#pragma once
#include <memory>

#include "collectives/backend/backend.h"

namespace lockstep::dist {

/// `gloo` connects the group as well: messages and the rarer collectives go over it, and the ranks agree over it on
/// whether all have the memory.
std::unique_ptr<BackendConnector> make_shared_memory_connector(const GroupDescription& group,
                                                               std::unique_ptr<BackendConnector> gloo);

}  // namespace lockstep::dist
