// Gloo over TCP, with what LibTorch's own Gloo lacks: a stuck collective can be freed (ProcessGroupGloo::abort does
// nothing).
#pragma once
#include <memory>

#include "collectives/backend/backend.h"

namespace lockstep::dist {

std::unique_ptr<BackendConnector> make_gloo_connector(const GroupDescription& group);

}  // namespace lockstep::dist
