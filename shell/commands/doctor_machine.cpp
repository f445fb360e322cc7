#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "protocol/error.h"
#include "protocol/runtime_folder.h"
#include "protocol/user_folders.h"
#include "shell/commands/doctor.h"
#include "shell/processes/launcher.h"
#include "shell/processes/limits.h"
#include "shell/processes/session_directory.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMb = 1 << 20;
// The cache has the header, its prelude and room to build them. The runtime folder has objects and texts of a long
// session.
constexpr int64_t kCacheSpace = 500 * kMb, kRuntimeSpace = 50 * kMb;
// Two ranks, the compiler and the shell take so much when idle (docs/performance.md).
constexpr int64_t kSessionMemory = 1000 * kMb;
// A worker with LibTorch has so many mappings before the first cell, and each loaded cell takes so many.
constexpr int64_t kMappingsAtStart = 600, kMappingsPerCell = 5;
constexpr int64_t kFewCells = 5000;

std::string size_text(int64_t bytes) {
  return bytes >= 10 * 1024 * kMb ? fmt::format("{} GB", bytes / (1024 * kMb)) : fmt::format("{} MB", bytes / kMb);
}

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

Check check_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kb = 0, available = -1;
  while (file >> name >> kb) {
    if (name == "MemAvailable:") available = kb * 1024;
    file.ignore(64, '\n');
  }
  Check check{.name = "memory",
              .data = {{"available_bytes", available}, {"cores", std::thread::hardware_concurrency()}}};
  check.found = fmt::format("{} free, {} cores", size_text(available), std::thread::hardware_concurrency());
  if (available >= 0 && available < kSessionMemory) {
    check.state = CheckState::note;
    check.fix = fmt::format("a session of two ranks takes about {}: end other programs, or take one rank (-n 1)",
                            size_text(kSessionMemory));
  }
  return check;
}

Check check_cells() {
  Check check{.name = "cells"};
  const std::optional<int64_t> mappings = number_in("/proc/sys/vm/max_map_count");
  if (!mappings) {
    check.state = CheckState::note;
    check.found = "the limit on mappings (vm.max_map_count) can't be read";
    check.fix = "mount /proc";
    return check;
  }
  const int64_t cells = std::max<int64_t>(0, (*mappings - kMappingsAtStart) / kMappingsPerCell);
  check.data = {{"max_map_count", *mappings}, {"cells", cells}};
  check.found = fmt::format("about {} cells in a session (vm.max_map_count is {})", cells, *mappings);
  if (cells < kFewCells) {
    check.state = cells == 0 ? CheckState::missing : CheckState::note;
    check.fix = "as root: sysctl -w vm.max_map_count=65530 (sessions warn before they come near)";
  }
  return check;
}

Check check_limits() {
  Check check{.name = "limits"};
  const auto limit_of = [](auto resource) {
    rlimit limit = {};
    ::getrlimit(resource, &limit);
    return limit;
  };
  const auto text = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value);
  };
  const rlimit files = limit_of(RLIMIT_NOFILE), processes = limit_of(RLIMIT_NPROC), memory = limit_of(RLIMIT_AS);
  check.found = fmt::format("descriptors {} (up to {}), processes {}, address space {}", text(files.rlim_cur),
                            text(files.rlim_max), text(processes.rlim_cur), text(memory.rlim_cur));
  check.data = {{"descriptors", text(files.rlim_max)},
                {"processes", text(processes.rlim_cur)},
                {"address_space", text(memory.rlim_cur)}};
  if (memory.rlim_cur != RLIM_INFINITY && memory.rlim_cur < 8ull * 1024 * kMb) {
    check.state = CheckState::note;
    check.fix = "LibTorch maps several GB: ulimit -v unlimited";
  }
  if (const std::string shortage = stack_shortage(); !shortage.empty()) {
    check.state = CheckState::note;
    check.fix = shortage;
  }
  if (files.rlim_max != RLIM_INFINITY && files.rlim_max < 256) {
    check.state = CheckState::missing;
    check.fix = "ulimit -n 1024 (or /etc/security/limits.conf)";
  }
  return check;
}

Check check_shared_memory() {
  Check check{.name = "shared memory"};
  struct statvfs info = {};
  if (::statvfs("/dev/shm", &info) != 0 || ::access("/dev/shm", W_OK) != 0) {
    check.state = CheckState::note;
    check.found = std::string("/dev/shm can't be written: ") + std::strerror(errno);
    check.fix =
        "mount -t tmpfs tmpfs /dev/shm (containers: --shm-size); data loaders with workers and NCCL need it, sessions "
        "start without";
    return check;
  }
  const auto free = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  check.data = {{"free_bytes", free}};
  check.found = size_text(free) + " free in /dev/shm";
  if (free < 64 * kMb) {
    check.state = CheckState::note;
    check.fix = "make room in /dev/shm, or give the container more (--shm-size=1g)";
  }
  return check;
}

/// Returns the nearest folder above `path` (itself included) that is there.
fs::path existing_part(fs::path path) {
  std::error_code error;
  while (!path.empty() && path != path.root_path() && !fs::exists(path, error)) path = path.parent_path();
  return path;
}

/// Checks a folder that has to be there or to be made, written to, and have that much room.
Check check_folder(const char* name, const fs::path& path, int64_t space, const char* variable) {
  Check check{.name = name};
  const fs::path there = existing_part(path);
  struct statvfs info = {};
  const bool is_writable = ::access(there.c_str(), W_OK | X_OK) == 0 && fs::is_directory(there);
  const int why = errno;
  const bool has_info = ::statvfs(there.c_str(), &info) == 0;
  const int64_t free = has_info ? static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize) : -1;
  check.data = {{"path", path.string()}, {"writable", is_writable}, {"free_bytes", free}};
  check.found = fmt::format("{}, {} free", path.string(), size_text(free));
  if (!is_writable) {
    check.state = CheckState::missing;
    check.found = fmt::format("{} can't be written ({} : {})", path.string(), there.string(),
                              fs::is_directory(there) ? std::strerror(why) : "not a folder");
    check.fix = fmt::format("give yourself write permission there, or let {} name another folder", variable);
  } else if (has_info && free < space) {
    check.state = CheckState::missing;
    check.fix =
        fmt::format("make room ({} are needed), or let {} name a folder on another disk", size_text(space), variable);
  }
  return check;
}

Check check_cache() {
  const fs::path folder = protocol::user_folder("XDG_CACHE_HOME", ".cache");
  if (folder.empty())
    return {.name = "cache",
            .state = CheckState::missing,
            .found = "neither XDG_CACHE_HOME nor HOME is set, and this user has no home",
            .fix = "set XDG_CACHE_HOME to a folder of yours",
            .data = nullptr};
  Check check = check_folder("cache", folder / "lockstep", kCacheSpace, "XDG_CACHE_HOME");
  if (const std::string problem = protocol::writable_by_others(folder / "lockstep/pch"); !problem.empty()) {
    check.state = CheckState::missing;
    check.found += "; " + problem;
    check.fix =
        "give it to yourself and take the permission away (chown, chmod go-w), or set XDG_CACHE_HOME to a folder of "
        "yours";
  }
  return check;
}

Check check_runtime() {
  try {
    return check_folder("runtime folder", protocol::runtime_directory(), kRuntimeSpace, "XDG_RUNTIME_DIR");
  } catch (const StartError& error) {
    return {.name = "runtime folder",
            .state = CheckState::missing,
            .found = error.what(),
            .fix = "see above",
            .data = nullptr};
  }
}

/// Listens on a loopback port of the kernel's choice, connects to it and sends a byte.
Check check_loopback() {
  Check check{.name = "loopback"};
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const auto works = [&] {
    auto* where = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), where, sizeof address) != 0 || ::listen(listener.get(), 1) != 0) return false;
    if (::getsockname(listener.get(), where, &length) != 0) return false;
    if (::connect(client.get(), where, sizeof address) != 0 || ::send(client.get(), "x", 1, MSG_NOSIGNAL) != 1)
      return false;
    const Descriptor server(::accept(listener.get(), nullptr, nullptr));
    char byte;
    return ::recv(server.get(), &byte, 1, 0) == 1;
  };
  if (works()) {
    check.found = "127.0.0.1 works, ports are chosen by the kernel";
  } else {
    check.state = CheckState::missing;
    check.found = std::string("127.0.0.1 does not work: ") + std::strerror(errno);
    check.fix = "bring the interface up (ip link set lo up), and let the firewall pass connections to 127.0.0.1";
  }
  return check;
}

/// LOCKSTEP_* variables that mean nothing are slips: they would silently do nothing.
Check check_environment() {
  const std::vector<std::string> known = known_variables();
  Check check{.name = "environment", .found = "no LOCKSTEP_* variable is set", .data = nlohmann::json::object()};
  std::string set, unknown;
  for (char** variable = environ; *variable; ++variable) {
    const std::string pair = *variable;
    const std::string name = pair.substr(0, pair.find('='));
    if (!name.starts_with("LOCKSTEP_") || name.starts_with("LOCKSTEP_TEST_")) continue;
    check.data[name] = pair.substr(std::min(pair.size(), name.size() + 1));
    set += (set.empty() ? "" : ", ") + pair;
    if (std::find(known.begin(), known.end(), name) == known.end())
      unknown += (unknown.empty() ? "" : "; ") + name + " means nothing" + did_you_mean(name, known);
  }
  if (!set.empty()) check.found = set;
  if (!unknown.empty()) {
    check.state = CheckState::note;
    check.fix = unknown;
  }
  return check;
}

}  // namespace

std::vector<Check> check_machine() {
  return {check_memory(), check_cells(),   check_limits(),   check_shared_memory(),
          check_cache(),  check_runtime(), check_loopback(), check_environment()};
}

}  // namespace lockstep::shell
