// A rank answers these requests of a shell (python/agent/agent.h): "status", "collectives", "stacks".
#pragma once
#include <nlohmann/json.hpp>

namespace lockstep::python {

/// Registers the handlers, once, and starts the agent of this process. `facts` are {"rank", "world_size", "local_rank"}
/// where torch.distributed knows them, else null: then the environment of the launcher counts; {"torch", "python",
/// "script"}; "only_with_launcher": starts nothing in a process that no launcher has given a rank. Returns {"folder"}
/// of the job, or {"problem"}: why there is no agent. Local; never throws for what the machine lacks.
nlohmann::json start_agent(const nlohmann::json& facts);

/// Says how the program ends (protocol::RankEnd), with the numbers of its last collectives. Called before the
/// interpreter ends, without its lock: waits for requests that use the lock, and none uses it from here on.
void end_agent(const nlohmann::json& end);

}  // namespace lockstep::python
