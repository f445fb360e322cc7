#include "collectives/log/marked_processes.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/files.h"
#include "protocol/whole_number.h"

namespace lockstep::dist {
namespace {

constexpr int kPasses = 100;  // each ends what the one before it left behind: processes that were forked meanwhile
// Passes that wait for an environment that is empty: execve takes less than a millisecond.
constexpr int kPassesForEmpty = 20;
constexpr std::chrono::seconds kDeathLimit{2};  // of processes that the kernel can't end now; they are left

std::vector<pid_t> own_processes() {
  std::vector<pid_t> found;
  DIR* directory = ::opendir("/proc");
  if (!directory) return found;
  while (const dirent* entry = ::readdir(directory)) {
    const auto pid = protocol::whole_number<pid_t>(entry->d_name);
    if (!pid || pid == ::getpid()) continue;
    struct stat status = {};
    if (::fstatat(::dirfd(directory), entry->d_name, &status, 0) == 0 && status.st_uid == ::geteuid())
      found.push_back(*pid);
  }
  ::closedir(directory);
  return found;
}

/// What the process was started with, each entry between two zeros, so that no other variable's end is taken for one.
std::string environment_of(pid_t pid) {
  const std::string text = protocol::read_file("/proc/" + std::to_string(pid) + "/environ").value_or("");
  return text.empty() ? "" : '\0' + text + '\0';
}

bool has_marks(const std::string& environment, const std::vector<std::string>& marks) {
  return std::all_of(marks.begin(), marks.end(), [&](const std::string& mark) {
    return environment.find('\0' + mark + '\0') != std::string::npos;
  });
}

/// False for a thread of the kernel, and for a process that has ended: their environment is empty for good.
bool has_memory(pid_t pid) {
  const auto sizes = protocol::read_file("/proc/" + std::to_string(pid) + "/statm");
  return sizes && !sizes->starts_with("0 ");
}

}  // namespace

int end_marked_processes(const std::vector<std::string>& marks, const std::vector<pid_t>& except) {
  std::set<pid_t> left(except.begin(), except.end());
  int ended = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<std::pair<pid_t, Descriptor>> dying;
    bool in_execve = false;
    for (const pid_t pid : own_processes()) {
      if (left.contains(pid)) continue;
      // The descriptor comes first: whoever has the number afterwards, the signal goes to this process.
      Descriptor process = open_process(pid);
      if (!process) continue;
      const std::string environment = environment_of(pid);
      // The kernel shows an empty one during execve, too.
      if (environment.empty()) in_execve |= pass < kPassesForEmpty && has_memory(pid);
      if (has_marks(environment, marks) && signal_process(process.get(), SIGKILL))
        dying.emplace_back(pid, std::move(process));
    }
    if (dying.empty() && !in_execve) break;
    if (dying.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended += static_cast<int>(dying.size());
    for (const auto& [pid, process] : dying)
      if (!is_ready(process.get(), POLLIN, kDeathLimit)) left.insert(pid);
  }
  return ended;
}

}  // namespace lockstep::dist
