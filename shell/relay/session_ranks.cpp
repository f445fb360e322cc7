#include "shell/relay/session_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "inspectors/hang/picture_json.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/version.h"
#include "shell/hosts/host.h"
#include "shell/hosts/network.h"

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
  return options;
}

}  // namespace

void SessionRanks::take(const StartRanks& order) {
  if (ranks_) return;  // it has been started
  try {
    start(order);
  } catch (const Error& error) {
    write_(RanksFailed{error.what()}, {});
  }
}

void SessionRanks::start(const StartRanks& order) {
  order_ = order;
  if (hub_.empty()) throw StartError("the relay has no socket at which ranks could come");
  enter(order.directory);
  const bool has_store = order.store.empty();
  const Interface interface = has_store ? interface_of_this_host(/*is_alone=*/order.nodes == 1)
                                        : interface_towards(order.store.substr(0, order.store.rfind(':')));
  if (!has_store) check_reach(order.store, kReachLimit);
  directory_ = std::make_unique<SessionDirectory>();
  ranks_ =
      std::make_unique<LocalRanks>(loop_, plan_session(options_of(order)), *directory_, "ipc://" + hub_, std::nullopt,
                                   has_store ? interface.address : kLoopback, network_environment(interface));
  ranks_->start(order, listener());
}

/// Folders of the session's machine are those of all hosts where homes are shared.
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
                nlohmann::json workers = nlohmann::json::array();
                for (size_t i = 0; i < what.pids.size(); ++i)
                  workers.push_back({{"rank", order_.first + static_cast<int>(i)},
                                     {"pid", what.pids[i]},
                                     {"start_time", what.start_times[i]}});
                directory_->describe({{"started", std::time(nullptr)},
                                      {"ranks", order_.count},
                                      {"backend", what.backend},
                                      {"versions", {{"lockstep", kVersion}}},
                                      {"workers", workers}});
                RanksStarted said = what;
                said.folder = directory_->path();
                write_(said, {});
              },
          .failed = [this](const std::string& why) { write_(RanksFailed{why}, {}); },
          .ended =
              [this](int rank, const std::string& how, int signal) {
                RankEnded ended{
                    .rank = rank, .how = how, .signal = signal, .last_lines = ranks_->last_lines(rank), .ends = {}};
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

void SessionRanks::take(const KillRank& kill) {
  if (ranks_ && kill.rank >= order_.first && kill.rank < order_.first + order_.count) ranks_->kill(kill.rank);
}

void SessionRanks::take(const PutFile& file, const std::string& bytes) {
  // A name, and no path: nothing is written elsewhere. A rank that does not find the file says so.
  if (!directory_ || file.name.empty() || file.name.find('/') != std::string::npos || file.name.front() == '.') return;
  const std::string path = directory_->path() + "/" + file.name;
  if (const int error = protocol::replace_file(path, bytes, 0600))
    write_(RelayWarning{fmt::format("{} can't write {}: {}", this_host(), path, std::strerror(error))}, {});
}

void SessionRanks::take(const ReadLogs& read) {
  Logs answer{.number = read.number, .logs = {}};
  for (const int rank : read.ranks) {
    inspect::RankPicture picture;
    picture.rank = rank;
    if (ranks_) ranks_->read_logs({&picture}, read.recent);
    answer.logs[rank] = inspect::log_json(picture);
  }
  write_(answer, {});
}

void SessionRanks::take(const EndSoon&) {
  if (ranks_) ranks_->end_soon();
}

}  // namespace lockstep::shell
