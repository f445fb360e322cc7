// The backend of a group whose ranks share memory. It has Gloo's collectives: those that move or reduce dense tensors
// of all ranks go through the memory, all others, and messages, through Gloo.
#pragma once
#include <memory>

#include "collectives/backend/backend.h"
#include "collectives/transport/shared_memory/shared_region.h"

namespace lockstep::dist {

c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo,
                                                             std::shared_ptr<SharedRegion> region,
                                                             const GroupDescription& group);

}  // namespace lockstep::dist
