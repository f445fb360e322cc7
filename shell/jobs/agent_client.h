// Sends requests to the agents of a job's ranks (python/agent/agent.h). Each has a deadline: a rank whose agent doesn't
// answer, because its process is stopped or has died, costs that rank.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "inspectors/evidence/evidence.h"
#include "protocol/error.h"
#include "protocol/json_fields.h"
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

LOCKSTEP_JSON(AgentAnswer, body, error)

/// Reads the line that an agent has answered.
AgentAnswer read_agent_answer(std::string_view line);

/// Asks ranks of another machine in place of this process.
class RankProxy {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~RankProxy() = default;
  /// Sends a request to `ranks`, which are to answer within `limit`. Returns its number.
  virtual int64_t send(const std::vector<JobMember>& ranks, const nlohmann::json& request,
                       std::chrono::milliseconds limit) = 0;
  /// Waits for the answers until `end`. Every rank that was asked has one.
  virtual std::map<int, AgentAnswer> receive(int64_t number, Clock::time_point end) = 0;
  /// Returns the path there of a socket through which a rank connects to the hub of this process.
  virtual std::string hub_path() const = 0;
  /// Makes a file of `bytes` in the folder of the session there. Returns its path.
  virtual std::string put(const std::string& name, const std::shared_ptr<const std::string>& bytes) = 0;
  /// Turns times of that machine's clock into those of this one's.
  virtual void to_local_time(inspect::Evidence& evidence) const = 0;
};

/// Requests that a rank's proxy answers from the rank's collective log, if it has one: {"logs": [Evidence]},
/// {"digests": [dist::CallDigests]} and {"call": LoggedCall} (job_logs.h).
inline constexpr const char* kLogRequest = "log";
inline constexpr const char* kDigestsRequest = "digests";
inline constexpr const char* kCallRequest = "call";

/// Sends `request` ({"request": "status", …}) to all `ranks` at once and waits for their answers, at most `limit` for
/// all of them. Returns them by rank. Ranks that are dead are not asked. Throws nothing for failures of ranks.
std::map<int, AgentAnswer> ask_ranks(const std::vector<JobMember>& ranks, const nlohmann::json& request,
                                     std::chrono::milliseconds limit);

/// Does the same for one socket. Throws AgentError.
nlohmann::json ask_agent(const std::string& socket, const nlohmann::json& request, std::chrono::milliseconds limit);

}  // namespace lockstep::shell
