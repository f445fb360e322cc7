#include "shell/look/running_ranks.h"

#include <dirent.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/launchers.h"
#include "protocol/whole_number.h"
#include "shell/jobs/rank_ends.h"
#include "shell/look/copies.h"
#include "shell/look/native_stack.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Besides those that number ranks.
constexpr std::array kWanted = {"MASTER_ADDR",
                                "MASTER_PORT",
                                "TORCHELASTIC_RUN_ID",
                                "TORCHELASTIC_ERROR_FILE",
                                "SLURM_JOB_ID",
                                "SLURM_STEP_ID",
                                "SLURM_NNODES",
                                "SLURM_STEP_NUM_NODES",
                                "PMIX_NAMESPACE",
                                "NCCL_RAS_ADDR",
                                "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
                                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                                "TORCH_FR_DUMP_TEMP_FILE",
                                "TORCH_WORKER_SERVER_SOCKET",
                                "VIRTUAL_ENV",
                                "CONDA_PREFIX"};

/// Whether a variable says something of a rank.
bool is_wanted(const std::string& name) {
  return std::ranges::find(kWanted, name) != kWanted.end() ||
         std::ranges::any_of(protocol::kLaunchers, [&](const protocol::Launcher& each) {
           return name == each.rank || name == each.world_size || name == each.local_rank ||
                  name == each.local_world_size;
         });
}

struct Process {
  int64_t pid = 0, parent = 0;
  uint64_t started = 0;
  uid_t user = 0;
  bool has_ended = false;
  std::string name;  // the kernel's: "python", "pt_main_thread"
};

/// Holds what a process says of itself.
struct Candidate {
  Process process;
  RunningRank rank;
  const protocol::Launcher* launcher = nullptr;  // null: it has no numbers
  int world_size = 0, local_size = 0;
  bool has_torch = false, is_python = false;
  std::string job;  // the same for all ranks of one
};

std::map<int64_t, Process> all_processes() {
  std::map<int64_t, Process> found;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const auto pid = protocol::whole_number<int>(entry->path().filename().string());
    struct stat status = {};
    if (!pid || ::stat(entry->path().c_str(), &status) != 0) continue;
    const std::string text = protocol::read_file(entry->path().string() + "/stat").value_or("");
    std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
    Process process{.pid = *pid, .user = status.st_uid};
    if (std::string state; fields >> state >> process.parent) process.has_ended = state == "Z" || state == "X";
    if (const size_t open = text.find('('); open != std::string::npos)
      process.name = text.substr(open + 1, text.rfind(')') - open - 1);
    process.started = dist::process_start_time(*pid).value_or(0);
    found.emplace(*pid, process);
  }
  return found;
}

std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

/// Returns what the process says, as JSON: it is asked in a copy of this process.
std::string ask_process(int64_t pid) {
  const std::string folder = fmt::format("/proc/{}/", pid);
  json answer = {{"variables", json::object()}};
  const auto environment = protocol::read_file(folder + "environ");
  answer["refused"] = !environment && (errno == EACCES || errno == EPERM);
  const auto keep = [&](const std::string& name, const std::string& value) {
    if (is_wanted(name)) answer["variables"][name] = value;
  };
  for (const std::string& each : parts(environment.value_or("")))
    if (const size_t sign = each.find('='); sign != std::string::npos)
      keep(each.substr(0, sign), each.substr(sign + 1));
  std::error_code error;
  const bool python = fs::read_symlink(folder + "exe", error).filename().string().starts_with("python");
  answer["python"] = python;
  const auto& variables = answer["variables"];
  const bool numbered =
      std::ranges::any_of(protocol::kLaunchers, [&](const auto& each) { return variables.contains(each.rank); });
  if (numbered || python) {
    const std::string maps = protocol::read_file(folder + "maps").value_or("");
    answer["torch"] = maps.find("/libtorch") != std::string::npos;
    answer["gpu"] = maps.find("/dev/nvidia") != std::string::npos;
    answer["command"] = parts(protocol::read_file(folder + "cmdline").value_or(""));
    answer["folder"] = fs::read_symlink(folder + "cwd", error).string();
    // Ranks that a script has started (torch.multiprocessing) have set their variables themselves, and any rank may have
    // set others before it has used torch.
    if (answer["torch"])
      for (const auto& [name, value] : live_environment(pid)) keep(name, value);
  }
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Returns "train.py" of {"/usr/bin/python3", "-u", "train.py", "--lr", "1"}, or of a program "train".
std::string script_of(const std::vector<std::string>& command) {
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i] == "-m" && i + 1 < command.size()) return "-m " + command[i + 1];
    if (command[i] == "-c") return "-c";
    if (!command[i].starts_with('-')) return command[i];
  }
  return command.empty() ? "" : command.front();
}

Candidate candidate_of(const Process& process, const std::string& text) {
  const json answer = json::parse(text);
  Candidate found{.process = process};
  RunningRank& rank = found.rank;
  rank.pid = process.pid;
  rank.variables = answer.at("variables").get<std::map<std::string, std::string>>();
  rank.uses_gpu = answer.value("gpu", false);
  rank.folder = answer.value("folder", "");
  found.has_torch = answer.value("torch", false);
  found.is_python = answer.at("python");
  const auto command = answer.value("command", std::vector<std::string>());
  rank.script = script_of(command);
  const auto variable = [&](const char* name) {
    const auto at = rank.variables.find(name);
    return at == rank.variables.end() ? std::string() : at->second;
  };
  if (found.is_python && !command.empty() && command.front().find('/') != std::string::npos) {
    rank.python_folder = (fs::path(rank.folder) / command.front()).parent_path().string();
  } else if (found.is_python) {
    const std::string environment =
        variable("VIRTUAL_ENV").empty() ? variable("CONDA_PREFIX") : variable("VIRTUAL_ENV");
    if (!environment.empty()) rank.python_folder = environment + "/bin";
  }
  const auto launched = protocol::launched_rank(variable);
  if (!launched) return found;
  found.launcher = launched->launcher;
  rank.rank = launched->rank;
  rank.local_rank = launched->local_rank.value_or(-1);
  found.world_size = launched->world_size;
  found.local_size = launched->local_world_size;
  const std::string address = variable("MASTER_ADDR");
  const bool one_node = variable("SLURM_STEP_NUM_NODES") == "1" || variable("SLURM_NNODES") == "1" ||
                        address == "localhost" || address == "::1" || address.starts_with("127.");
  if (found.local_size == 0 && one_node) found.local_size = found.world_size;
  const std::string run = variable("TORCHELASTIC_RUN_ID"), port = variable("MASTER_PORT");
  const std::string step = fmt::format("{}.{}", variable("SLURM_JOB_ID"),
                                       variable("SLURM_STEP_ID").empty() ? "0" : variable("SLURM_STEP_ID"));
  if (!run.empty() && run != "none")
    found.job = run;
  else if (!port.empty())
    found.job = address + ":" + port;
  else if (std::string_view(found.launcher->name) == "Slurm")
    found.job = step;
  else if (!variable("PMIX_NAMESPACE").empty())
    found.job = variable("PMIX_NAMESPACE");
  else
    found.job = std::to_string(process.parent);
  return found;
}

/// Whether `pid` is `ancestor` or comes from it.
bool comes_from(const std::map<int64_t, Process>& processes, int64_t pid, int64_t ancestor) {
  for (size_t steps = 0; steps < processes.size(); ++steps) {
    if (pid == ancestor) return true;
    const auto at = processes.find(pid);
    if (at == processes.end() || at->second.parent == 0) return false;
    pid = at->second.parent;
  }
  return false;
}

/// Removes launchers: torchrun has Slurm's variables, or those of the pod that it runs in, and its ranks have their own.
void drop_launchers(const std::map<int64_t, Process>& processes, std::vector<Candidate>& candidates) {
  std::set<int64_t> launchers;
  for (const Candidate& each : candidates)
    for (const Candidate& other : candidates)
      if (each.job != other.job && other.rank.variables.contains("RANK") &&
          comes_from(processes, other.process.parent, each.process.pid))
        launchers.insert(each.process.pid);
  std::erase_if(candidates, [&](const Candidate& each) { return launchers.contains(each.process.pid); });
}

/// Of processes that have the same rank, the first that uses torch is the rank: its children have its variables, and a
/// shell that has started it as well.
const Candidate* rank_among(const std::map<int64_t, Process>& processes, const std::vector<const Candidate*>& same) {
  const Candidate* found = nullptr;
  const auto worth = [](const Candidate& each) { return each.has_torch ? 2 : each.is_python ? 1 : 0; };
  for (const Candidate* each : same)
    if (!found || worth(*each) > worth(*found) ||
        (worth(*each) == worth(*found) && comes_from(processes, found->process.pid, each->process.pid)))
      found = each;
  return found;
}

RunningJob job_of(const std::map<int64_t, Process>& processes, const std::vector<Candidate>& candidates) {
  RunningJob job;
  std::map<int, std::vector<const Candidate*>> by_rank;
  for (const Candidate& each : candidates) by_rank[each.rank.rank].push_back(&each);
  RankSet here;
  bool known = true;
  std::set<int64_t> parents;
  for (const auto& [rank, same] : by_rank) {
    const Candidate& found = *rank_among(processes, same);
    if (job.ranks.empty()) {
      job.id = found.job;
      job.world_size = found.world_size;
      job.launcher = found.rank.variables.contains("TORCHELASTIC_RUN_ID") ? "torchrun" : found.launcher->name;
    }
    job.ranks.push_back(found.rank);
    parents.insert(found.process.parent);
    const int first = found.local_size == found.world_size ? 0 : found.rank.rank - found.rank.local_rank;
    if (found.local_size == 0 || (first != 0 && found.rank.local_rank < 0)) known = false;
    for (int i = 0; i < found.local_size && first + i < job.world_size; ++i) here.insert(first + i);
  }
  // Where nothing says which ranks are of this machine, those that are not here may be anywhere.
  job.elsewhere = job.world() - (known ? here : RankSet()) - job.present();
  for (const auto& [pid, process] : processes)
    if (process.has_ended && parents.contains(process.parent) && !parents.contains(1))
      if (const auto status = wait_status_of_zombie(pid)) job.ended.push_back({pid, *status});
  return job;
}

std::string user_name(uid_t user) {
  const passwd* const entry = ::getpwuid(user);
  return entry ? entry->pw_name : std::to_string(user);
}

/// Processes without numbers that were named: those of them, or of their children, that use torch.
RunningJob numbered_here(std::vector<Candidate> candidates) {
  std::ranges::sort(candidates, {},
                    [](const Candidate& each) { return std::pair(each.process.started, each.process.pid); });
  RunningJob job{.id = std::to_string(candidates.front().process.pid),
                 .launcher = {},
                 .world_size = static_cast<int>(candidates.size()),
                 .numbered_here = true};
  for (Candidate& each : candidates) {
    each.rank.rank = static_cast<int>(job.ranks.size());
    job.ranks.push_back(std::move(each.rank));
  }
  return job;
}

}  // namespace

std::string how_to_be_allowed() {
  std::string words = "Run lockstep look as the user of the job, or as root";
  if (const std::string scope = protocol::read_file("/proc/sys/kernel/yama/ptrace_scope").value_or("0");
      !scope.starts_with('0'))
    words +=
        fmt::format("; kernel.yama.ptrace_scope is {}, with 0 the same user may: sysctl kernel.yama.ptrace_scope=0",
                    scope.substr(0, 1));
  return words +
         "; in a container, it has to be started with --cap-add=SYS_PTRACE (Kubernetes: capabilities.add of the "
         "securityContext)";
}

RankSet RunningJob::present() const {
  RankSet found;
  for (const RunningRank& each : ranks) found.insert(each.rank);
  return found;
}

RankSet RunningJob::world() const { return RankSet::all(world_size); }

std::vector<RunningJob> find_running_jobs(const std::vector<int64_t>& pids, std::chrono::milliseconds limit) {
  const std::map<int64_t, Process> processes = all_processes();
  for (const int64_t pid : pids) {
    const auto named = processes.find(pid);
    if (named == processes.end()) throw UsageError(fmt::format("there is no process {}", pid));
    if (named->second.user != ::geteuid() && ::geteuid() != 0)
      throw UsageError(
          fmt::format("process {} is of {}: its user and root can look at it", pid, user_name(named->second.user)));
  }
  std::set<uid_t> users;
  for (const int64_t pid : pids) users.insert(processes.at(pid).user);
  if (pids.empty()) users.insert(::geteuid());
  std::vector<int64_t> asked;
  for (const auto& [pid, process] : processes)
    if (users.contains(process.user) && !process.has_ended && pid != ::getpid()) asked.push_back(pid);
  std::vector<Candidate> candidates, unnumbered;
  size_t refused = 0;
  for (const auto& [pid, answer] : ask_in_copies(asked, limit, ask_process)) {
    const Process& process = processes.at(pid);
    const bool may_be_rank = process.name.starts_with("python") || process.name.starts_with("pt_") ||
                             std::ranges::find(pids, pid) != pids.end();
    refused += may_be_rank && json::parse(answer).value("refused", false);
    Candidate found = candidate_of(process, answer);
    (found.launcher ? candidates : unnumbered).push_back(std::move(found));
  }
  drop_launchers(processes, candidates);
  std::map<std::string, std::vector<Candidate>> by_job;
  for (Candidate& each : candidates) by_job[each.job].push_back(std::move(each));
  std::vector<RunningJob> jobs;
  for (const auto& [id, of_job] : by_job) {
    const bool is_meant =
        pids.empty() || std::ranges::any_of(of_job, [&](const Candidate& each) {
          return std::ranges::any_of(pids, [&](int64_t pid) {
            return comes_from(processes, each.process.pid, pid) || comes_from(processes, pid, each.process.pid);
          });
        });
    if (is_meant) jobs.push_back(job_of(processes, of_job));
  }
  if (jobs.empty() && refused > 0)
    throw UsageError(fmt::format("no rank was found, and the kernel refuses to show {} of the processes here. {}",
                                 refused, how_to_be_allowed()));
  if (!jobs.empty() || pids.empty()) return jobs;
  std::erase_if(unnumbered, [&](const Candidate& each) {
    return !each.has_torch || std::ranges::none_of(pids, [&](int64_t pid) {
      return pid == each.process.pid || pid == each.process.parent;
    });
  });
  // What has started them is none of them, though it has imported torch as well.
  std::set<int64_t> parents;
  for (const Candidate& each : unnumbered) parents.insert(each.process.parent);
  std::erase_if(unnumbered, [&](const Candidate& each) { return parents.contains(each.process.pid); });
  if (unnumbered.empty())
    throw UsageError(
        fmt::format("process {} is neither a rank nor the launcher of ranks: no process there has RANK "
                    "and WORLD_SIZE (or those of Slurm or MPI), or uses torch",
                    pids.front()));
  return {numbered_here(std::move(unnumbered))};
}

RunningJob choose_job(std::vector<RunningJob> jobs, const std::string& id) {
  std::vector<std::vector<std::string>> rows;
  std::vector<size_t> meant;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const RunningJob& job = jobs[i];
    rows.push_back({job.id, fmt::format("{} of {} ranks", job.ranks.size(), job.world_size), job.ranks.front().script,
                    "in " + job.ranks.front().folder, fmt::format("process {}", job.ranks.front().pid)});
    if (job.id == id) meant.insert(meant.begin(), i);
    if (job.id != id && job.id.starts_with(id)) meant.push_back(i);
  }
  if (jobs.empty())
    throw UsageError(
        "no job of yours runs on this machine: no process has RANK and WORLD_SIZE, or those of Slurm or MPI. Name the "
        "processes of one that sets none: lockstep look PID...");
  if (!meant.empty() && (meant.size() == 1 || jobs[meant.front()].id == id)) return std::move(jobs[meant.front()]);
  throw UsageError((meant.empty() ? "there is no job " + id + "; there is\n"
                                  : "several jobs run; choose one: lockstep look --job ID, or lockstep look PID\n") +
                   table(rows, 2));
}

}  // namespace lockstep::shell
