// Gloo for tensors of a device of any type: their values go through host memory. A collective copies its inputs on a
// side stream that waits for the caller's current one. A thread hands the host's copies to Gloo, in the order of the
// calls, as soon as they have arrived. Results are copied back on the side stream. The caller never waits for the
// device: wait() makes its current stream wait for the results, after the host has waited for Gloo.
#pragma once
#include <memory>

#include "collectives/backend/backend.h"

namespace lockstep::dist {

/// Makes Gloo through host memory; tensors of the CPU go straight to Gloo. The tensors of one collective are on one
/// device, or on the CPU. It takes no sparse ones.
std::unique_ptr<BackendConnector> make_staged_gloo_connector(const GroupDescription& group);

}  // namespace lockstep::dist
