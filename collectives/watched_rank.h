// A rank in C++ of a job that `lockstep run -- LAUNCHER…` watches. init_process_group starts the agent
// (python/agent/agent.h), which answers as in a rank of a Python job: progress, and stacks with lines. The collective
// log lies in the job's folder.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"

namespace lockstep::dist {

/// Starts an agent where `lockstep run` has started this process, and nobody has started one. Returns the path for the
/// collective log; empty in every other process. Local; a rank that can't be watched says so on its standard error.
std::string join_watched_job(const InitOptions& options);

/// Lets the agent answer from the log of the groups that were made last.
void answer_from(const std::shared_ptr<CollectiveLog>& log);

/// Tells a group of this process that calls of ranks on different machines differ: {"incarnation", "message",
/// "finding"}. Returns {"told": whether the group is here, with these connections}. For agents.
nlohmann::json take_mismatch(const nlohmann::json& request);

/// Returns the groups of a rank, with how far they are: {"default": {"enqueued": 4, "completed": 3}}.
nlohmann::json progress_of(CollectiveLog& log);

}  // namespace lockstep::dist
