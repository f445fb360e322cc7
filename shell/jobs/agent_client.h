// Sends requests to the agents of a job's ranks (python/agent/agent.h). Each has a deadline: a rank whose agent doesn't
// answer, because its process is stopped or has died, costs that rank.
#pragma once
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "protocol/error.h"
#include "shell/jobs/job_folder.h"

namespace lockstep::shell {

/// The rank could not be asked, did not answer in time, or answered with an error.
struct AgentError : Error {
  using Error::Error;
};

struct AgentAnswer {
  nlohmann::json body;  // an object; null where `error` says why there is none
  std::string error;
};

/// Sends `request` ({"request": "status", …}) to all `ranks` at once and waits for their answers, at most `limit` for
/// all of them. Returns them by rank. Ranks that are dead are not asked. No exceptions for what ranks do.
std::map<int, AgentAnswer> ask_ranks(const std::vector<JobMember>& ranks, const nlohmann::json& request,
                                     std::chrono::milliseconds limit);

/// Does the same for one socket. Throws AgentError.
nlohmann::json ask_agent(const std::string& socket, const nlohmann::json& request, std::chrono::milliseconds limit);

}  // namespace lockstep::shell
