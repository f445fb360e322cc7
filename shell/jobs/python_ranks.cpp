#include "shell/jobs/python_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/descriptor_messages.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/installation.h"
#include "protocol/runtime_folder.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kEndPatience{1000};  // for a process that has closed its sockets

// With which an interpreter ends that can't be used: it has no torch, or no package lockstep.
constexpr int kNoTorch = 77, kNoPackage = 78;

// An installed package comes before the one that lies beside this program. The folder `lockstep` of a tree is none.
constexpr const char* kFindPackage = R"python(import gc, os, sys
from importlib.util import find_spec
gc.disable()  # until torch is imported, whose objects stay: going through them takes a fifteenth of the time
if find_spec("torch") is None:
    sys.exit(77)
found = find_spec("lockstep")
if (found is None or not found.origin) and os.environ.get("LOCKSTEP_PACKAGE"):
    sys.path.append(os.environ["LOCKSTEP_PACKAGE"])
    found = find_spec("lockstep")
if found is None or not found.origin:
    sys.exit(78)
)python";
constexpr const char* kStart = R"python(
try:
    from lockstep.session import _start
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("lockstep"):
        raise
    sys.exit(78)
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
    throw StartError("--python=" + named + ": no such program is in PATH");
  }
  if (const auto variable = value_of("LOCKSTEP_PYTHON")) return {*variable};
  std::vector<std::string> found;
  for (const char* name : {"python3", "python"})
    for (std::string& path : all_in_path(name)) found.push_back(std::move(path));
  if (found.empty())
    throw StartError(
        "there is no python3 in PATH; activate the environment that has torch, or name "
        "its interpreter: --python=PATH");
  return found;
}

/// Why none of the interpreters can be used; `ends` are their exit codes.
std::string no_use(const std::vector<std::string>& interpreters, const std::vector<int>& ends) {
  if (const auto found = std::ranges::find(ends, kNoPackage); found != ends.end())
    return fmt::format("{} has torch, and no package lockstep of this version: install its wheel there",
                       interpreters.at(static_cast<size_t>(found - ends.begin())));
  return fmt::format("{} {} no torch: activate the environment that has it, or name its interpreter: --python=PATH",
                     fmt::join(interpreters, ", "), interpreters.size() == 1 ? "has" : "have");
}

/// Launches an interpreter that reads `code` after kFindPackage.
Launch launch_of(const std::string& interpreter, const char* code) {
  Launch launch;
  launch.program = interpreter;
  launch.arguments = {"-c", std::string(kFindPackage) + code};
  if (const fs::path package = protocol::programs_prefix() / "python"; fs::exists(package / "lockstep"))
    launch.environment["LOCKSTEP_PACKAGE"] = package.string();
  return launch;
}

}  // namespace

std::string find_interpreter(const std::string& named) {
  const std::vector<std::string> candidates = interpreters(named);
  std::vector<int> ends;
  for (const std::string& each : candidates) {
    ends.push_back(Child(launch_of(each, "")).wait().exit_code());
    if (ends.back() == 0) return fs::absolute(each).string();
  }
  throw StartError(no_use(candidates, ends));
}

PythonRanks::PythonRanks(EventLoop& loop, SessionPlan plan, SessionDirectory& directory, std::string hub_path,
                         std::string address, std::map<std::string, std::string> environment)
    : loop_(loop),
      plan_(std::move(plan)),
      directory_(directory),
      hub_path_(std::move(hub_path)),
      address_(std::move(address)),
      environment_(std::move(environment)),
      report_(make_pipe()),
      tail_(std::make_unique<OutputTail>()) {}

PythonRanks::~PythonRanks() {
  for (auto& [rank, process] : processes_) {
    if (process.pid > 0 && !process.has_ended) ::kill(-process.pid, SIGKILL);
    if (process.pidfd && !process.has_ended) loop_.forget(process.pidfd.get());
    loop_.forget(process.tail->fd());
  }
  loop_.forget(tail_->fd());
  loop_.forget(report_.read.get());
  if (starter_) loop_.forget(starter_->pidfd());
}

void PythonRanks::start(const StartRanks& order, Listener listener) {
  order_ = order;
  listener_ = std::move(listener);
  interpreters_ = interpreters(order_.python.value_or(""));
  store_ = std::make_unique<StoreProcess>(loop_, directory_, address_,
                                          [this](const std::string& how, const std::string& last_lines) {
                                            if (!ending_) listener_.store_ended(how, last_lines);
                                          });
  store_->start(worker_launch());
  if (order_.store.empty()) order_.store = store_->address();
  for (int rank = order_.first; rank < order_.first + order_.count; ++rank) {
    directory_.add_rank(rank);
    processes_[rank].tail = std::make_unique<OutputTail>();
    processes_[rank].output = std::make_unique<LastOutput>();
  }
  set_nonblocking(report_.read.get());
  loop_.watch(report_.read.get(), [this] { read_report(); });
  watch_tail(*tail_);
  for (const auto& [rank, process] : processes_) watch_tail(*process.tail);
  start_interpreter(ranks_here(), 0);
}

RankSet PythonRanks::ranks_here() const {
  RankSet ranks;
  for (const auto& [rank, process] : processes_) ranks.insert(rank);
  return ranks;
}

std::string PythonRanks::plan_of(const RankSet& ranks, int64_t generation, int orders) const {
  nlohmann::json plans = nlohmann::json::array();
  for (const int rank : ranks) plans.push_back(rank_json(rank, generation));
  const nlohmann::json plan = {{"ranks", plans},
                               {"report", report_.write.get()},
                               {"orders", orders},
                               {"common",
                                {{"world_size", order_.world_size},
                                 {"hub", hub_path_},
                                 {"threads", plan_.threads},
                                 // The default is watched: mismatches and hangs are found, and %abort works.
                                 {"backend", is_watched() ? "lockstep" : order_.backend},
                                 {"generation", generation},
                                 {"has_grown", has_grown_},
                                 {"loopback", order_.nodes == 1},
                                 {"arguments", order_.arguments}}}};
  return plan.dump();
}

nlohmann::json PythonRanks::rank_json(int rank, int64_t generation) const {
  const size_t colon = order_.store.rfind(':');
  const int here = rank - order_.first;
  const auto index = static_cast<size_t>(here);
  std::map<std::string, std::string> environment = {
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(order_.local_first + here)},
      {"WORLD_SIZE", std::to_string(order_.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(order_.local_size)},
      {"GROUP_RANK", std::to_string(order_.node)},
      {"MASTER_ADDR", order_.store.substr(0, colon)},
      {"MASTER_PORT", order_.store.substr(colon + 1)},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},  // the store is there already
      {"LOCKSTEP_RANK", std::to_string(rank)},
      {"LOCKSTEP_CHECK_COLLECTIVES", order_.check_collectives ? "1" : "0"},
      {protocol::kJobVariable, folder_.path()}};
  // Nothing listens on other interfaces where all ranks are here.
  if (order_.nodes == 1 && !value_of("GLOO_SOCKET_IFNAME")) environment["GLOO_SOCKET_IFNAME"] = "lo";
  // Also for a rank that comes later, which can't ask the others.
  if (is_watched()) environment["LOCKSTEP_BACKEND"] = plan_.backend;
  environment.merge(device_environment(plan_, here));
  environment.insert(environment_.begin(), environment_.end());
  return {{"rank", rank},
          {"environment", environment},
          {"identity", order_.identities.at(index)},
          {"output", processes_.at(rank).output->descriptors()},
          {"tail", processes_.at(rank).tail->write_end()},
          {"device", plan_.devices[index]},
          {"gpu_id", plan_.gpu_ids.empty() ? -1 : plan_.gpu_ids[index]}};
}

void PythonRanks::start_interpreter(const RankSet& ranks, int64_t generation) {
  auto [ours, its] = make_message_sockets();
  const std::string plan_file = directory_.path() + "/ranks.json";
  protocol::write_at_once(plan_file, plan_of(ranks, generation, its.get()));
  const Descriptor input(::open(plan_file.c_str(), O_RDONLY | O_CLOEXEC));
  Launch launch = launch_of(interpreter(), kStart);
  launch.environment["LOCKSTEP_SESSION_DIR"] = directory_.path();
  // Threads of OpenBLAS, which NumPy starts when it is imported, would be missing in the copies.
  if (!value_of("OPENBLAS_NUM_THREADS")) launch.environment["OPENBLAS_NUM_THREADS"] = "1";
  // A bar of tqdm within another takes its row: the cursor can't go up among the rows of several ranks. torch imports tqdm.
  if (!value_of("TQDM_POSITION")) launch.environment["TQDM_POSITION"] = "0";
  launch.input = input.get();
  launch.output = tail_->write_end();
  launch.inherit = {report_.write.get(), its.get()};
  for (const int rank : ranks) {
    const Process& process = processes_.at(rank);
    launch.inherit.push_back(process.tail->write_end());
    for (const int each : process.output->descriptors()) launch.inherit.push_back(each);
  }
  if (starter_) loop_.forget(starter_->pidfd());
  starter_ = std::make_unique<Child>(launch);
  orders_ = std::move(ours);
  loop_.watch(starter_->pidfd(), [this] {
    const auto end = starter_->ended();
    if (!end) return;
    loop_.forget(starter_->pidfd());
    interpreter_ended(*end);
  });
}

void PythonRanks::interpreter_ended(const ProcessEnd& end) {
  orders_.reset();
  const bool is_of_no_use = end.signal == 0 && (end.code == kNoTorch || end.code == kNoPackage);
  try {
    if (!are_started_ && is_of_no_use) {
      ends_.push_back(end.code);
      if (candidate_ + 1 == interpreters_.size()) return listener_.failed(no_use(interpreters_, ends_));
      ++candidate_;
      return start_interpreter(ranks_here(), 0);
    }
  } catch (const StartError& error) {
    return listener_.failed(error.what());
  }
  const std::string lines = tail_->last_lines();
  const std::string why = interpreter() + " " + end.str() + (lines.empty() ? "" : "; it wrote:\n" + lines);
  if (!are_started_) return listener_.failed(why);
  for (auto& [rank, process] : processes_) {  // those that it has started die with it
    if (process.pid > 0 || process.has_ended) continue;
    process.has_ended = true;
    listener_.ended(rank, {why, end.signal});
  }
}

void PythonRanks::grow(const SessionPlan& plan) {
  plan_ = plan;
  has_grown_ = true;
  order_.grow(plan.world_size);
}

RankProcess PythonRanks::restart(int rank, const std::string& identity, int64_t generation) {
  Process& process = processes_[rank];
  if (process.tail) loop_.forget(process.tail->fd());
  process = {};
  process.tail = std::make_unique<OutputTail>();
  process.output = std::make_unique<LastOutput>();
  directory_.set_rank_aside(rank);
  directory_.add_rank(rank);
  order_.identities.at(static_cast<size_t>(rank - order_.first)) = identity;
  watch_tail(*process.tail);
  if (order_rank(rank, generation)) return {};
  if (!starter_->ended_within(kEndPatience)) {  // the ranks that live would end with it
    process.has_ended = true;
    throw StartError("the process that starts the ranks does not take the order");
  }
  start_interpreter(RankSet{rank}, generation);
  return {};
}

/// Returns false where the process that started the ranks has ended.
bool PythonRanks::order_rank(int rank, int64_t generation) {
  const Process& process = processes_.at(rank);
  std::vector<int> descriptors = process.output->descriptors();
  descriptors.insert(descriptors.begin(), process.tail->write_end());
  return orders_ && send_descriptors(orders_.get(), plan_of(RankSet{rank}, generation, -1), descriptors);
}

void PythonRanks::watch_tail(OutputTail& tail) {
  loop_.watch(tail.fd(), [this, &tail] {
    if (!tail.take()) loop_.forget(tail.fd());
  });
}

void PythonRanks::read_report() {
  const Reading found = read_some(report_.read.get(), reported_);
  for (size_t end; (end = reported_.find('\n')) != std::string::npos; reported_.erase(0, end + 1)) {
    std::istringstream line(reported_.substr(0, end));
    int number = -1;
    pid_t pid = 0;
    if (!(line >> number >> pid) || !processes_.contains(number) || processes_[number].pid != 0 ||
        processes_[number].has_ended)
      continue;
    if (pid > 0) {
      started(number, pid);
    } else {
      processes_[number].has_ended = true;
      listener_.ended(number, {"could not be started; " + interpreter() + " wrote:\n" + tail_->last_lines(), 0});
    }
  }
  if (found == Reading::empty || found == Reading::bytes) return;
  loop_.forget(report_.read.get());
}

void PythonRanks::started(int rank, pid_t pid) {
  Process& process = processes_.at(rank);
  process.pid = pid;
  process.output->close_writing_ends();
  process.tail->close_write_end();
  store_->rank_has_started(pid);
  process.pidfd = open_process(pid);
  if (!process.pidfd) {  // it has ended already
    process.has_ended = true;
    listener_.ended(rank, {"ended as it started", 0});
    return;
  }
  loop_.watch(process.pidfd.get(), [this, rank] { ended(rank); });
  if (process.is_unwanted) kill(rank);
  if (are_started_) return;  // it was started again
  RanksStarted started{
      .store = order_.store, .backend = plan_.backend, .devices = plan_.devices, .interpreter = interpreter()};
  for (const auto& [number, each] : processes_) {
    if (each.pid == 0) return;  // it comes
    started.pids.push_back(each.pid);
    started.start_times.push_back(dist::process_start_time(each.pid).value_or(0));
  }
  are_started_ = true;
  listener_.started(started);
}

void PythonRanks::ended(int rank) {
  Process& process = processes_.at(rank);
  if (!is_ready(process.pidfd.get(), POLLIN)) return;
  loop_.forget(process.pidfd.get());
  process.has_ended = true;
  SeenEnd end{.rank = rank, .pid = process.pid, .wait_status = wait_status_of_zombie(process.pid)};
  const Job job = folder_.read();
  if (const JobMember* member = job.rank(rank); member && member->facts.pid == process.pid)
    end.said = member->facts.end;
  ::kill(-process.pid, SIGKILL);  // what is left of its group: it is a zombie, so the number is its own
  store_->rank_has_ended(rank, process.pid, ending_);
  end.note(memory_kills_.rise());
  listener_.ended(rank, end.exit(/*is_here=*/true));
}

void PythonRanks::kill(int rank) {
  Process& process = processes_.at(rank);
  const auto lives = [](const auto& each) { return each.second.pid > 0 && !each.second.has_ended; };
  if (process.pid > 0 && !process.has_ended)
    ::kill(-process.pid, SIGKILL);
  else if (are_started_ && process.pid == 0 && std::ranges::none_of(processes_, lives))
    starter_->kill();  // it imports torch
  else if (process.pid == 0)
    process.is_unwanted = true;
}

std::string PythonRanks::last_lines(int rank) {
  const auto found = processes_.find(rank);
  return found == processes_.end() ? "" : found->second.tail->last_lines();
}

void PythonRanks::read_log(inspect::RankPicture& rank, const inspect::LogPart& part) {
  inspect::read_log(rank, protocol::rank_log(folder_.path(), rank.rank), part);
}

}  // namespace lockstep::shell
