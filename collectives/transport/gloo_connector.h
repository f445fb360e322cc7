// Gloo over TCP, in which a stuck collective can be freed. LibTorch's own Gloo can't do that (ProcessGroupGloo::abort
// does nothing).
#pragma once
#include <memory>

#include "collectives/backend/backend.h"

namespace lockstep::dist {

std::unique_ptr<BackendConnector> make_gloo_connector(const GroupDescription& group);

}  // namespace lockstep::dist
