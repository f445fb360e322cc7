#include "shell/jobs/python_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/installation.h"
#include "protocol/runtime_folder.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// Importing torch from a cold disk, or over a network, takes long.
constexpr seconds kStartLimit{180};
constexpr seconds kStartLimitPerRank{1};
constexpr int kNoTorch = 77;  // with which an interpreter ends that has no torch

// An installed package comes before the one that lies beside this program. The folder `lockstep` of a tree is none.
constexpr const char* kStart = R"python(import os, sys
from importlib.util import find_spec
if find_spec("torch") is None:
    sys.exit(77)
found = find_spec("lockstep")
if (found is None or not found.origin) and os.environ.get("LOCKSTEP_PACKAGE"):
    sys.path.append(os.environ["LOCKSTEP_PACKAGE"])
try:
    from lockstep.session import _start
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("lockstep"):
        raise
    sys.exit(f"{sys.executable} has torch, and no package lockstep of this version: install the wheel (tools/wheel)")
_start.main()
)python";

std::optional<std::string> value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

/// Returns the programs of that name in PATH.
std::vector<std::string> all_in_path(const std::string& name) {
  std::vector<std::string> found;
  std::istringstream folders(value_of("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path path = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code error;
    if (fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0 &&
        std::find(found.begin(), found.end(), path.string()) == found.end())
      found.push_back(path.string());
  }
  return found;
}

std::vector<std::string> interpreters(const std::string& named) {
  if (!named.empty() && named.find('/') != std::string::npos) return {named};
  if (!named.empty()) {
    if (const auto found = all_in_path(named); !found.empty()) return {found.front()};
    throw StartError("the session could not start: --python=" + named + ": no such program is in PATH");
  }
  if (const auto variable = value_of("LOCKSTEP_PYTHON")) return {*variable};
  std::vector<std::string> found;
  for (const char* name : {"python3", "python"})
    for (std::string& path : all_in_path(name)) found.push_back(std::move(path));
  if (found.empty())
    throw StartError(
        "the session could not start: there is no python3 in PATH; activate the environment that has torch, or name "
        "its interpreter: --python=PATH");
  return found;
}

std::string no_torch(const std::vector<std::string>& interpreters) {
  return fmt::format("{} {} no torch: activate the environment that has it, or name its interpreter: --python=PATH",
                     fmt::join(interpreters, ", "), interpreters.size() == 1 ? "has" : "have");
}

}  // namespace

std::string find_interpreter(const std::string& named) {
  const std::vector<std::string> candidates = interpreters(named);
  for (const std::string& each : candidates) {
    Launch launch;
    launch.program = each;
    launch.arguments = {"-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"};
    if (Child(launch).wait().exit_code() == 0) return fs::absolute(each).string();
  }
  throw StartError(no_torch(candidates));
}

PythonGroup::PythonGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options,
                         std::unique_ptr<JobFolder> folder, SessionDirectory& directory, Listener listener)
    : JobGroup(loop, folder->read(), plan.world_size, /*hosts=*/nullptr, directory, std::move(listener)),
      folder_(std::move(folder)),
      interpreters_(interpreters(*options.python)),
      report_(make_pipe()),
      tail_(std::make_unique<OutputTail>()) {
  store_ = std::make_unique<StoreProcess>(loop_, worker_launch(), directory, kLoopback,
                                          [this](const std::string& how, const std::string& last_lines) {
                                            if (starting_)
                                              start_error_ = "the store's process " + how + "\n" + last_lines;
                                            else if (!ending_)
                                              listener_.store_ended(how);
                                          });
  for (int rank = 0; rank < plan.world_size; ++rank) {
    directory.add_rank(rank);
    tails_.push_back(std::make_unique<OutputTail>());
    outputs_.push_back(std::make_unique<LastOutput>());
    at(rank).info.device = plan.devices[static_cast<size_t>(rank)];
  }
  plan_file_ = directory.path() + "/ranks.json";
  protocol::write_at_once(plan_file_, ranks_of(plan, options));
  set_nonblocking(report_.read.get());
  start_interpreter();
}

PythonGroup::~PythonGroup() {
  ending_ = true;
  for (int rank = 0; rank < world_size(); ++rank)
    if (this->rank(rank).pid > 0 && !at(rank).end) ::kill(-this->rank(rank).pid, SIGKILL);
  for (const auto& each : tails_) loop_.forget(each->fd());
  loop_.forget(tail_->fd());
  loop_.forget(report_.read.get());
  if (starter_) loop_.forget(starter_->pidfd());
}

/// What _start.py reads.
std::string PythonGroup::ranks_of(const SessionPlan& plan, const SessionOptions& options) {
  nlohmann::json ranks = nlohmann::json::array();
  const std::string size = std::to_string(plan.world_size);
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const std::string index = std::to_string(rank);
    std::map<std::string, std::string> environment = {
        {"RANK", index},
        {"LOCAL_RANK", index},
        {"WORLD_SIZE", size},
        {"LOCAL_WORLD_SIZE", size},
        {"GROUP_RANK", "0"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", std::to_string(store_->port())},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},  // the store is there already
        {"LOCKSTEP_RANK", index},
        {"LOCKSTEP_CHECK_COLLECTIVES", options.check_collectives ? "1" : "0"},
        {protocol::kJobVariable, folder_->path()}};
    // Nothing listens on other interfaces: all ranks are here.
    if (!value_of("GLOO_SOCKET_IFNAME")) environment["GLOO_SOCKET_IFNAME"] = "lo";
    environment.merge(device_environment(plan, rank));
    const auto index_of_rank = static_cast<size_t>(rank);
    ranks.push_back({{"environment", environment},
                     {"identity", hub_.expect(rank)},
                     {"output", output_of(rank).descriptors()},
                     {"tail", tail_of(rank).write_end()},
                     {"device", plan.devices[index_of_rank]},
                     {"gpu_id", plan.gpu_ids.empty() ? -1 : plan.gpu_ids[index_of_rank]}});
  }
  return nlohmann::json({{"ranks", ranks},
                         {"report", report_.write.get()},
                         {"common",
                          {{"world_size", plan.world_size},
                           {"hub", hub_path()},
                           {"threads", plan.threads},
                           // The default is watched: mismatches and hangs are found, and %abort works.
                           {"backend", options.backend == "auto" ? "lockstep" : options.backend},
                           {"arguments", options.arguments}}}})
      .dump();
}

void PythonGroup::start_interpreter() {
  const Descriptor input(::open(plan_file_.c_str(), O_RDONLY | O_CLOEXEC));
  Launch launch;
  launch.program = interpreter();
  launch.arguments = {"-c", kStart};
  launch.environment = {{"LOCKSTEP_SESSION_DIR", fs::path(plan_file_).parent_path().string()}};
  // Threads of OpenBLAS, which NumPy starts when it is imported, would be missing in the copies.
  if (!value_of("OPENBLAS_NUM_THREADS")) launch.environment["OPENBLAS_NUM_THREADS"] = "1";
  if (const fs::path package = protocol::programs_prefix() / "python"; fs::exists(package / "lockstep"))
    launch.environment["LOCKSTEP_PACKAGE"] = package.string();
  launch.input = input.get();
  launch.output = tail_->write_end();
  launch.inherit = {report_.write.get()};
  for (int rank = 0; rank < world_size(); ++rank) {
    launch.inherit.push_back(tail_of(rank).write_end());
    for (const int each : output_of(rank).descriptors()) launch.inherit.push_back(each);
  }
  starter_ = std::make_unique<Child>(launch);
  if (candidate_ == 0) {
    watch_tail(*tail_);
    for (const auto& each : tails_) watch_tail(*each);
    loop_.watch(report_.read.get(), [this] { read_report(); });
  }
  loop_.watch(starter_->pidfd(), [this] {
    const auto end = starter_->ended();
    if (!end) return;
    loop_.forget(starter_->pidfd());
    interpreter_ended(*end);
  });
}

void PythonGroup::interpreter_ended(const ProcessEnd& end) {
  if (!starting_) return;  // the ranks die with it
  const bool has_no_torch = end.signal == 0 && end.code == kNoTorch;
  try {
    if (has_no_torch && candidate_ + 1 < interpreters_.size()) {
      ++candidate_;
      return start_interpreter();
    }
  } catch (const StartError& error) {
    start_error_ = error.what();
    return;
  }
  if (has_no_torch)
    start_error_ = no_torch(interpreters_);
  else if (start_error_.empty())
    start_error_ = interpreter() + " " + end.str() + quoted(*tail_);
}

void PythonGroup::watch_tail(OutputTail& tail) {
  loop_.watch(tail.fd(), [this, &tail] {
    if (!tail.take()) loop_.forget(tail.fd());
  });
}

/// Returns "; it wrote:" and the last lines; empty where there are none.
std::string PythonGroup::quoted(OutputTail& tail) const {
  tail.take();
  const std::string lines = tail.last_lines();
  return lines.empty() ? "" : "; it wrote:\n" + lines;
}

void PythonGroup::read_report() {
  const Reading found = read_some(report_.read.get(), reported_);
  for (size_t end; (end = reported_.find('\n')) != std::string::npos; reported_.erase(0, end + 1)) {
    std::istringstream line(reported_.substr(0, end));
    int number = -1;
    pid_t pid = 0;
    if (!(line >> number >> pid) || number < 0 || number >= world_size()) continue;
    output_of(number).close_writing_ends();
    tail_of(number).close_write_end();
    store_->rank_has_started(pid);
    adopt(number, pid);
  }
  if (found == Reading::empty || found == Reading::bytes) return;
  loop_.forget(report_.read.get());
}

void PythonGroup::wait_connected() {
  const auto behind = [this] {
    RankSet result;
    for (int each = 0; each < world_size(); ++each)
      if (rank(each).state < State::ready) result.insert(each);
    return result;
  };
  const auto limit = kStartLimit + kStartLimitPerRank * world_size();
  if (!serve_start([&] { return behind().empty(); }, limit, "the session could not start: "))
    throw StartError(fmt::format("the session could not start: {} did not connect in {} s{}", behind().words(),
                                 limit.count(), quoted(tail_of(behind().ranks().front()))));
  starting_ = false;
}

void PythonGroup::kill(int number) {
  if (!at(number).end && rank(number).pid > 0) ::kill(-rank(number).pid, SIGKILL);
}

nlohmann::json PythonGroup::describe() const {
  nlohmann::json workers = nlohmann::json::array();
  for (int each = 0; each < world_size(); ++each)
    workers.push_back({{"rank", each}, {"pid", rank(each).pid}, {"start_time", start_time_of(each)}});
  return workers;
}

void PythonGroup::read_logs(const std::vector<inspect::RankPicture*>& ranks, size_t recent) const {
  for (inspect::RankPicture* each : ranks)
    inspect::read_log(*each, protocol::rank_log(folder_->path(), each->rank), recent);
}

std::array<std::string, 2> PythonGroup::take_last_output(int number, const std::array<int64_t, 2>& received) {
  const auto left = output_of(number).take(received);
  return {left[0].after(received[0]), left[1].after(received[1])};
}

std::optional<RankGroup::End> PythonGroup::take_end(int number) {
  const auto end = JobGroup::take_end(number);
  if (!end) return end;
  ::kill(-rank(number).pid, SIGKILL);  // what is left of its group: it is a zombie, so the number is its own
  store_->rank_has_ended(number, rank(number).pid, ending_);
  return end;
}

void PythonGroup::disconnected(int number) {
  if (rank(number).state == State::ready && !ending_) JobGroup::disconnected(number);
}

void PythonGroup::give_up(int number, const std::string& why) {
  const std::string what = "it sent the session what can't be read: " + why;
  if (starting_) {
    start_error_ = fmt::format("rank {}: {}", number, what);
  } else if (auto& last_words = at(number).last_words; !last_words) {
    last_words.emplace();
    last_words->type = "protocol_error";
    last_words->message = what + "; its process was ended";
    kill(number);
  }
}

void PythonGroup::buried(int number, State) {
  const auto& end = at(number).end;
  if (!end) return kill(number);  // its connection has ended, and with it what it is there for
  if (starting_ && start_error_.empty())
    start_error_ = fmt::format("rank {} {} while it started{}", number, end->words, quoted(tail_of(number)));
  if (starting_ || ending_) return;
  protocol::CellError error;
  if (at(number).last_words) error = *at(number).last_words;
  error.root_cause = true;
  if (error.type.empty()) error.type = end->signal != 0 ? signal_name(end->signal) : "exit";
  if (error.message.empty()) error.message = "the process " + end->words + quoted(tail_of(number));
  listener_.died(number, error);
}

}  // namespace lockstep::shell
