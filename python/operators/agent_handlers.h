// A rank answers these requests of a shell (python/agent/agent.h): "status", "collectives", "stacks", "abort",
// "abort_groups".
#pragma once
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

namespace lockstep::python {

/// Registers the handlers, once, and starts the agent of this process. `facts` are {"rank", "world_size", "local_rank"}
/// where torch.distributed knows them, else null: then the environment of the launcher counts; {"torch", "python",
/// "script"}; "only_with_launcher": starts nothing in a process that no launcher has given a rank. Returns {"folder"}
/// of the job, or {"problem"}: why there is no agent. Local; never throws for what the machine lacks.
nlohmann::json start_agent(const nlohmann::json& facts);

/// Says how the program ends (protocol::RankEnd), with the numbers of its last collectives. Called before the
/// interpreter ends, without its lock: waits for requests that use the lock, and none uses it from here on.
void end_agent(const nlohmann::json& end);

/// Registers both, once. "abort" shuts down the connections of Gloo's groups and answers at once, however the rank is
/// stuck: {"connections": N}. "abort_groups" calls c10d's abort() of every group that has a backend with one (NCCL, and
/// `lockstep`), which may wait for a device: {"groups": [names], "problems": [messages]}. Collectives that are under
/// way raise an exception, and so do later ones of these groups.
void expect_aborts();

/// Returns the answer of agent::take_stacks. Where the main thread holds the interpreter's lock, the lock is taken from
/// it for a moment; where it does not let go of it, since it stays within one call of C or C++, its stack is read
/// there. "at_lock" is there where the thread waits for that lock: "free" (another thread got it meanwhile), or "held".
nlohmann::json stacks(const nlohmann::json& request);

}  // namespace lockstep::python
