#include "collectives/log/marked_processes.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/files.h"

namespace lockstep::dist {
namespace {

constexpr int kPasses = 100;  // each ends what the one before it left behind: processes that were forked meanwhile
constexpr std::chrono::seconds kDeathLimit{2};  // of processes that the kernel can't end now; they are left

std::vector<pid_t> own_processes() {
  std::vector<pid_t> found;
  DIR* directory = ::opendir("/proc");
  if (!directory) return found;
  while (const dirent* entry = ::readdir(directory)) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto [rest, error] = std::from_chars(entry->d_name, end, pid);
    if (error != std::errc() || rest != end || pid == ::getpid()) continue;
    struct stat status = {};
    if (::fstatat(::dirfd(directory), entry->d_name, &status, 0) == 0 && status.st_uid == ::geteuid())
      found.push_back(pid);
  }
  ::closedir(directory);
  return found;
}

bool has_marks(pid_t pid, const std::vector<std::string>& marks) {
  // Each entry between two zeros, so that no other variable's end is taken for one.
  const std::string text = '\0' + protocol::read_file("/proc/" + std::to_string(pid) + "/environ").value_or("") + '\0';
  return std::all_of(marks.begin(), marks.end(),
                     [&](const std::string& mark) { return text.find('\0' + mark + '\0') != std::string::npos; });
}

}  // namespace

int end_marked_processes(const std::vector<std::string>& marks, const std::vector<pid_t>& except) {
  std::set<pid_t> left(except.begin(), except.end());
  int ended = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<std::pair<pid_t, Descriptor>> dying;
    for (const pid_t pid : own_processes()) {
      if (left.contains(pid)) continue;
      // The descriptor comes first: whoever has the number afterwards, the signal goes to this process.
      Descriptor process = open_process(pid);
      if (process && has_marks(pid, marks) && signal_process(process.get(), SIGKILL))
        dying.emplace_back(pid, std::move(process));
    }
    if (dying.empty()) break;
    ended += static_cast<int>(dying.size());
    for (const auto& [pid, process] : dying)
      if (!is_ready(process.get(), POLLIN, kDeathLimit)) left.insert(pid);
  }
  return ended;
}

}  // namespace lockstep::dist
