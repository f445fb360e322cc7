#include "shell/processes/deaths.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>
#include <utility>

#include "protocol/files.h"

namespace lockstep::shell {
namespace {

/// Returns the value in a line "oom_kill 3".
std::optional<int64_t> counter(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  for (int64_t value = 0; file >> key >> value;)
    if (key == name) return value;
  return std::nullopt;
}

std::optional<MemoryKills> out_of_memory_kills(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::"))
      if (const auto count = counter(root + "/sys/fs/cgroup" + line.substr(3) + "/memory.events", "oom_kill"))
        return MemoryKills{.count = *count};
  if (const auto count = counter(root + "/proc/vmstat", "oom_kill"))
    return MemoryKills{.count = *count, .of_machine = true};
  return std::nullopt;
}

}  // namespace

MemoryKillCounter::MemoryKillCounter(std::string root) : root_(std::move(root)), last_(out_of_memory_kills(root_)) {}

std::optional<MemoryKills> MemoryKillCounter::rise() {
  const auto before = std::exchange(last_, out_of_memory_kills(root_));
  return before && last_ && last_->count > before->count ? last_ : std::nullopt;
}

std::string out_of_memory_words(bool of_machine) {
  return fmt::format(": probably out of memory (the kernel's out-of-memory killer ended a process{})",
                     of_machine ? "" : " of this control group");
}

std::string load_failure_words(const ProcessEnd& end) {
  constexpr int kNotLoaded = 127;
  rlimit memory = {};
  if (end.signal != 0 || end.code != kNotLoaded || ::getrlimit(RLIMIT_AS, &memory) != 0 ||
      memory.rlim_cur == RLIM_INFINITY)
    return "";
  return fmt::format(": does it have too little memory (ulimit -v is {})?", memory.rlim_cur / 1024);
}

// core(5). Fields other than the number of the process stay as they are written there.
std::string core_words(const ProcessEnd& end, pid_t pid, const std::string& pattern) {
  if (!end.core || pattern.empty()) return "";
  if (pattern.starts_with('|'))
    return fmt::format("; its core went to {}", pattern.substr(1, pattern.find(' ') - 1)) +
           (pattern.find("systemd-coredump") == std::string::npos ? "" : fmt::format(": coredumpctl debug {}", pid));
  std::string name;
  bool has_pid = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      name += pattern[i];
      continue;
    }
    const char field = pattern[++i];
    if (field == 'p' || field == 'P')
      name += std::to_string(pid), has_pid = true;
    else if (field == '%')
      name += '%';
    else
      name += {'%', field};
  }
  if (!has_pid && protocol::first_line_of("/proc/sys/kernel/core_uses_pid") != "0") name += "." + std::to_string(pid);
  return "; its core file is " + name + (name.starts_with('/') ? "" : " in its working directory");
}

std::string core_words(const ProcessEnd& end, pid_t pid) {
  return core_words(end, pid, protocol::first_line_of("/proc/sys/kernel/core_pattern"));
}

}  // namespace lockstep::shell
