#include "shell/hosts/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>
#include <sstream>

#include "protocol/descriptor.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

constexpr std::chrono::seconds kSlurmLimit{5};  // for an answer of slurmctld

/// Reads until the other end is closed. False where that takes longer than kSlurmLimit.
bool read_in_time(int fd, std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + kSlurmLimit;
  pollfd polled{fd, POLLIN, 0};
  while (poll_until({&polled, 1}, deadline) > 0)
    if (const Reading found = read_some(fd, text); found != Reading::bytes) return true;
  return false;
}

/// Runs a program of Slurm and returns its lines. Throws StartError.
std::vector<std::string> lines_of(const std::string& program, std::vector<std::string> arguments) {
  Pipe pipe = make_pipe();
  Launch launch;
  launch.program = program;
  launch.arguments = std::move(arguments);
  launch.output = pipe.write.get();
  launch.outputs = {1};
  launch.outlives_slurm_signals = true;  // it may be asked just when Slurm signals all processes of the job
  Child child(launch);
  pipe.write.reset();
  std::string output;
  if (!read_in_time(pipe.read.get(), output))
    throw StartError(fmt::format("{} has not answered within {} s", program, kSlurmLimit.count()));
  std::istringstream text(output);
  if (const ProcessEnd end = child.wait(); end.exit_code() != 0)
    throw StartError(fmt::format("{} {}", program, end.str()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

/// Throws UsageError.
template <typename MakeHost>
std::vector<Host> named_hosts(const std::string& list, const MakeHost& make) {
  std::vector<Host> hosts;
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    if (name.empty() || name.front() == '-')
      throw UsageError(fmt::format("'{}' names no hosts: give them as node1,node2 or user@node1", list));
    if (std::ranges::any_of(hosts, [&](const Host& each) { return each.name == name; }))
      throw UsageError(fmt::format("the host {} is named twice", name));
    hosts.push_back(make(name));
  }
  return hosts;
}

}  // namespace

std::string this_host() { return protocol::host_name(); }

std::string processor_of_this_host() {
  std::istringstream text(protocol::read_file("/proc/cpuinfo").value_or(""));
  for (std::string line; std::getline(text, line);)
    if (const size_t colon = line.find(": "); line.starts_with("model name") && colon != line.npos)
      return line.substr(colon + 2);
  return "";
}

std::string quoted_for_shell(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> Host::starting(const std::string& program, const std::vector<std::string>& arguments) const {
  std::vector<std::string> whole = command;
  const auto add = [&](const std::string& word) { whole.push_back(has_shell ? quoted_for_shell(word) : word); };
  add(program);
  std::ranges::for_each(arguments, add);
  return whole;
}

std::vector<Host> ssh_hosts(const std::string& list) {
  // Without BatchMode ssh would ask for a password on the terminal, which is the job's.
  return named_hosts(list, [](const std::string& name) {
    return Host{.name = name,
                .command = {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", name, "exec"},
                .has_shell = true};
  });
}

std::vector<Host> kubectl_hosts(const std::string& list) {
  return named_hosts(list, [](const std::string& name) {
    return Host{.name = name, .command = {"kubectl", "exec", "-i", name, "--"}};
  });
}

std::vector<Host> hosts_of(const std::string& text) {
  constexpr std::string_view kSlurm = "slurm:", kKubectl = "kubectl:";
  if (text.empty()) return {};
  if (text.starts_with(kSlurm)) return slurm_hosts(text.substr(kSlurm.size()));
  return text.starts_with(kKubectl) ? kubectl_hosts(text.substr(kKubectl.size())) : ssh_hosts(text);
}

std::vector<Host> slurm_hosts(const std::string& job) {
  const std::vector<std::string> lists = lines_of("squeue", {"-h", "-j", job, "-t", "RUNNING", "-o", "%N"});
  if (lists.empty()) throw StartError(fmt::format("Slurm has no running job {}", job));
  std::vector<Host> hosts;
  for (std::string& name : lines_of("scontrol", {"show", "hostnames", lists.front()}))
    // Without --unbuffered Slurm keeps what has no end of line.
    hosts.push_back({.name = name,
                     .command = {"srun", "--quiet", "--unbuffered", "--overlap", "--jobid=" + job, "--nodes=1",
                                 "--ntasks=1", "--nodelist=" + name, "--mem=0"}});
  return hosts;
}

// The script of sbatch has SLURM_PROCID 0, and no step.
std::optional<SlurmPlace> slurm_place() {
  SlurmPlace place{.job = protocol::variable("SLURM_JOB_ID")};
  if (place.job.empty() || number(protocol::variable("SLURM_JOB_NUM_NODES")).value_or(1) < 2) return std::nullopt;
  if (const auto task = number(protocol::variable("SLURM_PROCID"));
      task && !protocol::variable("SLURM_STEP_ID").empty()) {
    place.is_task = true;
    place.task = *task;
    place.has_others_here = number(protocol::variable("SLURM_STEP_NUM_TASKS")).value_or(1) >
                            number(protocol::variable("SLURM_STEP_NUM_NODES")).value_or(1);
  }
  return place;
}

namespace {

/// Returns how long it is until a time as Slurm writes it: 2026-11-27T04:24:32.
std::optional<std::chrono::seconds> time_until(const std::string& when) {
  std::tm time = {};
  if (!::strptime(when.c_str(), "%Y-%m-%dT%H:%M:%S", &time)) return std::nullopt;
  time.tm_isdst = -1;
  return std::chrono::seconds(std::max<std::time_t>(0, std::mktime(&time) - std::time(nullptr)));
}

}  // namespace

SlurmEnd slurm_end() {
  SlurmEnd end{.job = protocol::variable("SLURM_JOB_ID"), .words = "", .left = {}};
  if (end.job.empty()) return {};
  try {
    std::map<std::string, std::string> facts;
    for (const std::string& line : lines_of("scontrol", {"-o", "show", "job", end.job})) {
      std::istringstream words(line);
      for (std::string word; words >> word;)
        if (const size_t at = word.find('='); at != std::string::npos) facts[word.substr(0, at)] = word.substr(at + 1);
    }
    const std::string preempted = facts["PreemptTime"], state = facts["JobState"];
    if (!preempted.empty() && preempted != "None")
      end.words = fmt::format("Slurm preempts job {}", end.job);
    else if (!state.empty() && state != "RUNNING")
      end.words =
          fmt::format("Slurm ends job {}, which has run for {} and may for {}: its limit is over, or it was cancelled",
                      end.job, facts["RunTime"], facts["TimeLimit"]);
    if (state == "RUNNING") end.left = time_until(facts["EndTime"]);
    return end;
  } catch (const StartError&) {
    return {};
  }
}

std::optional<std::chrono::seconds> slurm_kill_wait() {
  try {
    for (const std::string& line : lines_of("scontrol", {"show", "config"}))
      if (line.starts_with("KillWait "))
        if (const auto wait = number(line.substr(std::min(line.find_first_of("0123456789"), line.size()))))
          return std::chrono::seconds(*wait);
  } catch (const StartError&) {
  }
  return std::nullopt;
}

}  // namespace lockstep::shell
