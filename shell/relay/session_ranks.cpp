#include "shell/relay/session_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "inspectors/hang/picture_json.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/version.h"
#include "shell/hosts/host.h"
#include "shell/hosts/network.h"
#include "shell/jobs/python_ranks.h"
#include "shell/processes/gpus.h"
#include "shell/processes/local_ranks.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kReachLimit{8};  // it is said before people wonder

/// Returns what the environment of ranks says of the network, unless the user's does.
std::map<std::string, std::string> network_environment(const Interface& interface) {
  std::map<std::string, std::string> environment;
  for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})
    if (const char* value = std::getenv(name); !value || !*value) environment[name] = interface.name;
  return environment;
}

SessionOptions options_of(const StartRanks& order) {
  SessionOptions options;
  options.num_processes = order.count;
  options.backend = order.backend;
  options.share_gpu = order.share_gpu;
  options.all_gpus_visible = order.all_gpus_visible;
  options.python = order.python;
  // Other relays of this machine have the other GPUs, unless the launcher has given each its own.
  if (const int gpus = find_gpus().count(); gpus > 0 && order.local_size > order.count)
    options.gpu_ids = {order.local_first % gpus};
  return options;
}

}  // namespace

void SessionRanks::start(const StartRanks& order, SessionDirectory& directory) {
  if (directory_) return;  // they have been started
  order_ = order;
  directory_ = &directory;
  is_started_ = true;
  try {
    start_ranks();
  } catch (const Error& error) {
    write_(RanksFailed{error.what()}, {});
  }
}

void SessionRanks::start_ranks() {
  enter(order_.directory);
  const bool has_store = order_.store.empty();
  const Interface interface = has_store ? interface_of_this_host(/*is_alone=*/order_.nodes == 1)
                                        : interface_towards(order_.store.substr(0, order_.store.rfind(':')));
  interface_ = interface.name;
  if (!has_store) check_reach(order_.store, kReachLimit);
  SessionPlan plan = plan_session(options_of(order_));
  if (plan.backend == kSharedMemory) plan.backend = "gloo";  // other ranks may be on other hosts
  plan.threads = std::max(1, plan.threads * order_.count / std::max(order_.local_size, 1));
  const std::string address = has_store ? interface.address : kLoopback;
  auto environment = network_environment(interface);
  if (order_.python) {
    ranks_ = std::make_unique<PythonRanks>(loop_, std::move(plan), *directory_, directory_->hub_path(), address,
                                           std::move(environment));
  } else {
    hub_ = std::make_unique<RankHub>(loop_, directory_->hub_endpoint(), write_);
    for (int i = 0; i < order_.count; ++i) hub_->expect(order_.first + i, order_.identities.at(static_cast<size_t>(i)));
    ranks_ = std::make_unique<LocalRanks>(loop_, std::move(plan), *directory_, directory_->hub_endpoint(), std::nullopt,
                                          address, std::move(environment));
  }
  ranks_->start(order_, listener());
}

std::string SessionRanks::job_folder() const {
  const auto* const python = dynamic_cast<const PythonRanks*>(ranks_.get());
  return python ? python->job_folder() : "";
}

/// `folder` is that of the shell, on its machine: it is here, too, where it lies in a home that hosts share.
void SessionRanks::enter(const std::string& folder) {
  if (folder.empty() || ::chdir(folder.c_str()) == 0) return;
  std::error_code ignored;
  write_(RelayWarning{fmt::format("{} has no folder {} ({}): its ranks start in {}", this_host(), folder,
                                  std::strerror(errno), std::filesystem::current_path(ignored).string())},
         {});
}

RankPlace::Listener SessionRanks::listener() {
  return {.started =
              [this](const RanksStarted& what) {
                started_ = what;
                started_.interface = interface_;
                describe();
                write_(started_, {});
                for (size_t i = 0; i < started_.pids.size(); ++i) watch_calls(i);
              },
          .failed = [this](const std::string& why) { write_(RanksFailed{why}, {}); },
          .ended =
              [this](int rank, const RankExit& end) {
                if (const auto index = static_cast<size_t>(rank - order_.first); index < started_.pids.size())
                  calls_.remove(started_.pids[index]);
                RankEnded ended{.rank = rank,
                                .how = end.words,
                                .signal = end.signal,
                                .core = end.core,
                                .last_lines = ranks_->last_lines(rank),
                                .ends = {},
                                .log = log_of(rank, {.recent = 1})};
                std::vector<std::string> frames;
                for (LeftOutput& left : ranks_->take_output(rank)) {
                  ended.ends.push_back(left.end);
                  frames.push_back(std::move(left.log));
                  frames.push_back(std::move(left.pipe));
                }
                write_(ended, std::move(frames));
              },
          .store_ended = [this](const std::string& how,
                                const std::string& last_lines) { write_(StoreEnded{how, last_lines}, {}); },
          .warning = [this](const std::string& text) { write_(RelayWarning{text}, {}); }};
}

/// Ranks elsewhere are to call the same.
void SessionRanks::watch_calls(size_t index) {
  if (hub_ && order_.count < order_.world_size)
    calls_.add(started_.pids[index], directory_->rank_log(order_.first + static_cast<int>(index)));
}

/// Writes session.json.
void SessionRanks::describe() const {
  nlohmann::json workers = nlohmann::json::array();
  for (size_t i = 0; i < started_.pids.size(); ++i)
    workers.push_back({{"rank", order_.first + static_cast<int>(i)},
                       {"pid", started_.pids[i]},
                       {"start_time", started_.start_times[i]}});
  directory_->describe({{"started", std::time(nullptr)},
                        {"ranks", order_.count},
                        {"backend", started_.backend},
                        {"versions", {{"lockstep", kVersion}}},
                        {"workers", workers}});
}

void SessionRanks::take(const KillRank& kill) {
  if (ranks_ && kill.rank >= order_.first && kill.rank < order_.first + order_.count) ranks_->kill(kill.rank);
}

void SessionRanks::take(const RestartRank& restart) {
  const int index = restart.rank - order_.first;
  if (!ranks_ || index < 0 || index >= static_cast<int>(started_.pids.size())) return;
  try {
    if (hub_) hub_->expect(restart.rank, restart.identity);
    const RankProcess process = ranks_->restart(restart.rank, restart.identity, restart.generation);
    started_.pids[static_cast<size_t>(index)] = process.pid;
    started_.start_times[static_cast<size_t>(index)] = process.start_time;
    describe();
    watch_calls(static_cast<size_t>(index));
  } catch (const Error& error) {
    write_(RankEnded{.rank = restart.rank,
                     .how = std::string("could not be started: ") + error.what(),
                     .core = {},
                     .last_lines = {},
                     .ends = {},
                     .log = {}},
           {});
  }
}

void SessionRanks::take(const ToRanks& to, std::vector<std::string> frames) {
  if (hub_ && !frames.empty()) hub_->send(to.ranks, std::move(frames));
}

void SessionRanks::take(const ReadLogs& read) {
  Logs answer{.number = read.number, .logs = {}};
  std::set<std::string> known;
  for (const int rank : read.ranks) {
    nlohmann::json& log = answer.logs[rank] = log_of(rank, {.recent = read.recent, .digests = read.digests});
    // Most ranks have called the same: the digests of one of them are enough.
    if (read.digests && !known.insert(log["digests"].dump()).second) log["digests"] = nlohmann::json::array();
  }
  write_(answer, {});
}

nlohmann::json SessionRanks::log_of(int rank, const inspect::LogPart& part) const {
  inspect::RankPicture picture;
  picture.rank = rank;
  if (ranks_) ranks_->read_logs({&picture}, part);
  return inspect::log_json(picture);
}

void SessionRanks::take(const EndSoon&) {
  if (ranks_) ranks_->end_soon();
}

}  // namespace lockstep::shell
