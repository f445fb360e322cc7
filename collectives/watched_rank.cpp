#include "collectives/watched_rank.h"

#include <torch/version.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "collectives/watch/watched_group.h"
#include "protocol/environment.h"
#include "protocol/version.h"
#include "python/agent/agent.h"
#include "python/agent/server.h"
#include "python/agent/stacks.h"
#include "python/agent/uncaught.h"

namespace lockstep::dist {
namespace {

using nlohmann::json;

struct Watched {
  std::mutex mutex;
  bool started = false;  // the agent, by this file
  std::shared_ptr<CollectiveLog> log;
};

// Never destroyed: the agent's threads may outlive the library's objects.
Watched& watched() {
  static auto* one = new Watched;
  return *one;
}

std::shared_ptr<CollectiveLog> watched_log() {
  Watched& mine = watched();
  const std::lock_guard lock(mine.mutex);
  return mine.log;
}

json status(const json&) {
  const protocol::JobRank rank = agent::described_rank();
  const auto log = watched_log();
  return {{"rank", rank.rank},
          {"world_size", rank.world_size},
          {"pid", rank.pid},
          {"started", rank.started},
          {"step", nullptr},
          {"torch", rank.torch},
          {"groups", log ? progress_of(*log) : json::object()}};
}

json stacks(const json&) {
  json answer = agent::take_stacks(/*anyway=*/false, /*lines=*/true);
  answer.erase("python");
  return answer;
}

json abort_groups(const json&) {
  json groups = json::array();
  if (const auto log = watched_log(); log && is_initialized()) {
    for (const LoggedGroup& each : CollectiveLogReader(log->mapping()).groups())
      if (each.member) groups.push_back(each.name);
    dist::abort("a shell has called %abort");
  }
  return {{"groups", groups}, {"problems", json::array()}};
}

void add_handlers() {
  agent::add_handler("status", status);
  // A shell reads the log.
  for (const char* request : {"collectives", "collectives_without_stacks"})
    agent::add_handler(request, [](const json&) { return json{{"dumps", json::array()}}; });
  agent::add_handler("stacks", stacks, agent::Runs::aside);
  agent::add_handler("abort", [](const json&) { return json{{"connections", 0}}; });  // no group but those of dist::
  agent::add_handler("abort_groups", abort_groups, agent::Runs::aside);
  agent::add_handler("mismatch", take_mismatch, agent::Runs::aside);
  // A program in C++ has no breakpoints and counts no steps.
  agent::add_handler("serve", [](const json&) { return json{{"stopped", nullptr}}; });
  agent::add_handler("detach", [](const json&) { return json{{"stopped", nullptr}}; });
  agent::add_handler("take_back", [](const json&) { return json{{"taken_back", false}}; });
  agent::add_handler("stop_at",
                     [](const json&) { return json{{"step", nullptr}, {"late", false}, {"stopped", nullptr}}; });
}

}  // namespace

std::string join_watched_job(const InitOptions& options) {
  const char* folder = std::getenv(protocol::kJobVariable);
  protocol::JobRank rank;
  bool launched = agent::rank_from_environment(rank);
  if (options.rank >= 0 && options.world_size > options.rank) {
    rank.rank = options.rank;
    rank.world_size = options.world_size;
    if (!launched) rank.local_rank = options.rank;
    launched = true;
  }
  if (!folder || !*folder || !launched) return "";
  Watched& mine = watched();
  const std::lock_guard lock(mine.mutex);
  if (!mine.started) {
    if (agent::find_handler("status")) return "";  // a Python job, whose package answers
    add_handlers();
    rank.torch = TORCH_VERSION;
    rank.lockstep = kVersion;
    rank.script = protocol::own_program();
    if (const std::string problem = agent::start(rank); !problem.empty()) {
      // A program that a rank starts has the rank's variables, and is none.
      if (!problem.starts_with("another process"))
        std::cerr << "lockstep: this rank is not watched: " << problem << std::endl;
      return "";
    }
    mine.started = true;
    agent::report_uncaught_exceptions(/*is_program=*/true);
    std::atexit([] { agent::set_end({.how = "exited"}); });  // before the agent's own, which ends it
  }
  return protocol::rank_log(agent::job_folder(), rank.rank);
}

void answer_from(const std::shared_ptr<CollectiveLog>& log) {
  Watched& mine = watched();
  const std::lock_guard lock(mine.mutex);
  if (mine.started) mine.log = log;
}

json take_mismatch(const json& request) {
  constexpr std::chrono::milliseconds kPatience{100};
  const CollectiveMismatch mismatch(request.at("message"), request.at("finding").get<Finding>());
  return {{"told", tell_of_mismatch(request.at("incarnation"), mismatch, kPatience)}};
}

json progress_of(CollectiveLog& log) {
  log.device_progress().look();
  const CollectiveLogReader reader(log.mapping());
  std::map<std::string, int64_t> in_flight;
  for (const CollectiveRecord& each : reader.in_flight()) ++in_flight[each.group];
  json groups = json::object();
  for (const auto& [name, entered] : reader.progress())
    groups[name] = {{"enqueued", entered}, {"completed", entered - in_flight[name]}};
  return groups;
}

}  // namespace lockstep::dist
