#include "collectives/log/marked_processes.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

namespace lockstep::dist {
namespace {

constexpr int kPasses = 100;  // each ends what the one before it left behind: processes that were forked meanwhile
constexpr int kDeathLimit_ms = 2000;  // of processes that the kernel can't end now; they are left

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
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  // Each entry between two zeros, so that no other variable's end is taken for one.
  const std::string text =
      '\0' + std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()) + '\0';
  return std::all_of(marks.begin(), marks.end(),
                     [&](const std::string& mark) { return text.find('\0' + mark + '\0') != std::string::npos; });
}

}  // namespace

int end_marked_processes(const std::vector<std::string>& marks, const std::vector<pid_t>& except) {
  std::set<pid_t> left(except.begin(), except.end());
  int ended = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<std::pair<pid_t, pollfd>> dying;
    for (const pid_t pid : own_processes()) {
      if (left.contains(pid)) continue;
      // The descriptor comes first: whoever has the number afterwards, the signal goes to this process.
      const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
      if (fd < 0) continue;
      if (has_marks(pid, marks) && ::syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0) == 0)
        dying.push_back({pid, {.fd = fd, .events = POLLIN, .revents = 0}});
      else
        ::close(fd);
    }
    if (dying.empty()) break;
    ended += static_cast<int>(dying.size());
    for (auto& [pid, watched] : dying) {
      if (::poll(&watched, 1, kDeathLimit_ms) <= 0) left.insert(pid);
      ::close(watched.fd);
    }
  }
  return ended;
}

}  // namespace lockstep::dist
