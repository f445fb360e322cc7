// Says who this rank is, as cells see it.
#pragma once
#include <nlohmann/json.hpp>

namespace lockstep::python {

/// Takes {"rank", "world_size", "local_rank", "node_rank", "gpu_id", "device"}. Called before a cell is loaded, and
/// again where it has changed since.
void set_rank(const nlohmann::json& facts);

}  // namespace lockstep::python
