#include "python/agent/agent.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "collectives/log/process_identity.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/launchers.h"
#include "protocol/read_struct.h"
#include "python/agent/job_id.h"
#include "python/agent/server.h"

namespace lockstep::agent {
namespace {

using nlohmann::json;

struct Handlers {
  std::mutex mutex;
  std::map<std::string, std::pair<Handler, Runs>> all;
};

struct Agent {
  std::mutex mutex;
  Server* server = nullptr;  // never destroyed: see Server::stop
  std::string folder;
  bool owns_folder = false;  // no shell made it
  protocol::JobRank rank;
  int64_t stops = 0;  // so far
};

// Never destroyed: the threads may outlive the library's objects.
Handlers& handlers() {
  static auto* one = new Handlers;
  return *one;
}
Agent& agent() {
  static auto* one = new Agent;
  return *one;
}

std::atomic<Server*> g_server = nullptr;  // for the child of a fork
std::atomic<bool> g_is_child = false;     // of a process that had an agent

void after_fork_in_child() {
  if (Server* server = g_server.load()) {
    server->close_in_child();
    g_server.store(nullptr);
    g_is_child.store(true);
  }
}

/// Returns the process that has the rank's number now, if it lives.
bool is_taken(const std::string& folder, int rank) {
  const auto other =
      protocol::read_struct<protocol::JobRank>(protocol::read_file(protocol::rank_file(folder, rank)).value_or(""));
  return other && other->pid != ::getpid() &&
         dist::process_start_time(static_cast<pid_t>(other->pid)) == std::optional(other->start_time);
}

void write_rank(const Agent& mine) {
  protocol::write_at_once(protocol::rank_file(mine.folder, mine.rank.rank), json(mine.rank).dump(2) + "\n");
}

}  // namespace

void add_handler(const std::string& name, Handler handler, Runs runs) {
  Handlers& all = handlers();
  const std::lock_guard lock(all.mutex);
  all.all[name] = {std::move(handler), runs};
}

std::optional<std::pair<Handler, Runs>> find_handler(const std::string& name) {
  Handlers& all = handlers();
  const std::lock_guard lock(all.mutex);
  const auto found = all.all.find(name);
  return found == all.all.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> handler_names() {
  Handlers& all = handlers();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, handler] : all.all) names.push_back(name);
  return names;
}

bool rank_from_environment(protocol::JobRank& rank) {
  const auto launched = protocol::launched_rank(protocol::variable);
  if (!launched) return false;
  rank.rank = launched->rank;
  rank.world_size = launched->world_size;
  rank.local_rank = launched->local_rank.value_or(launched->rank);
  rank.local_world_size = launched->local_world_size;
  return true;
}

std::string start(protocol::JobRank rank) {
  if (g_is_child) return "this process is a child of a rank";
  Agent& mine = agent();
  const std::lock_guard lock(mine.mutex);
  if (mine.server) return "";
  rank.pid = ::getpid();
  rank.start_time = dist::process_start_time(::getpid()).value_or(0);
  rank.host = protocol::host_name();
  rank.started = std::time(nullptr);
  rank.end.reset();
  rank.stop.reset();
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
    std::atexit(stop);
  });
  protocol::JobRank launched;
  const char* named = std::getenv(protocol::kJobVariable);
  rank.run = run_of_launcher();
  rank.watch = watch_of_job();
  try {
    mine.folder = find_job_folder(/*alone=*/!rank_from_environment(launched) && rank.world_size == 1);
    mine.owns_folder = !named || !*named;
    mine.rank = rank;
    if (is_taken(mine.folder, rank.rank)) return fmt::format("another process of the job is rank {}, too", rank.rank);
    const std::string socket = protocol::rank_socket(mine.folder, rank.rank);
    ::unlink(socket.c_str());  // of a rank that has died
    auto* server = new Server(socket);
    try {
      write_rank(mine);
    } catch (const std::exception&) {
      server->stop();
      ::unlink(socket.c_str());
      throw;
    }
    mine.server = server;
    g_server = server;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string job_folder() {
  if (g_is_child) return "";
  Agent& mine = agent();
  const std::lock_guard lock(mine.mutex);
  return mine.server ? mine.folder : "";
}

protocol::JobRank described_rank() {
  if (g_is_child) return {};
  Agent& mine = agent();
  const std::lock_guard lock(mine.mutex);
  return mine.rank;
}

void set_stop(std::optional<protocol::RankStop> stop) {
  if (g_is_child) return;
  Agent& mine = agent();
  const std::lock_guard lock(mine.mutex);
  if (!mine.server || (!stop && !mine.rank.stop)) return;
  if (stop) stop->number = mine.rank.stop ? mine.rank.stop->number : ++mine.stops;
  mine.rank.stop = std::move(stop);
  try {
    write_rank(mine);
  } catch (const std::exception&) {  // a full disk: a shell that asks the rank learns of it all the same
  }
}

bool is_watched() {
  const std::string folder = job_folder();
  if (folder.empty()) return false;
  const json watch = protocol::read_json(protocol::read_file(folder + "/job.json").value_or(""));
  try {
    return dist::process_start_time(watch.at("pid").get<pid_t>()) ==
           std::optional(watch.at("start_time").get<uint64_t>());
  } catch (const json::exception&) {  // none, or written by no version of this program
    return false;
  }
}

void set_end(const protocol::RankEnd& end) {
  if (g_is_child) return;
  Agent& mine = agent();
  const std::lock_guard lock(mine.mutex);
  if (!mine.server || mine.rank.end) return;
  mine.rank.end = end;
  if (mine.rank.end->time == 0) mine.rank.end->time = std::time(nullptr);
  try {
    write_rank(mine);
  } catch (const std::exception&) {  // a full disk: the process ends all the same
  }
}

void stop() {
  if (g_is_child) return;
  Agent& mine = agent();
  Server* server = nullptr;
  {
    const std::lock_guard lock(mine.mutex);
    server = std::exchange(mine.server, nullptr);
    if (!server) return;
    g_server = nullptr;
    ::unlink(protocol::rank_socket(mine.folder, mine.rank.rank).c_str());
    if (mine.owns_folder) {  // else the shell reads how the rank ended
      ::unlink(protocol::rank_file(mine.folder, mine.rank.rank).c_str());
      ::rmdir(mine.folder.c_str());  // fails while other ranks have files there
    }
  }
  server->stop();  // without the lock: a request that is being answered may need it
}

}  // namespace lockstep::agent
