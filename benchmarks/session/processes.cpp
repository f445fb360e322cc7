#include "benchmarks/session/processes.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace lockstep::benchmark {
namespace {

namespace fs = std::filesystem;

std::string role_of(int64_t pid, const fs::path& folder) {
  const fs::path proc = fs::path("/proc") / std::to_string(pid);
  std::error_code error;
  const fs::path program = fs::read_symlink(proc / "exe", error);
  if (error || program.parent_path() != folder) return "";
  if (program.filename() == "lockstep-compiler") return "compiler";
  if (program.filename() != "lockstep-worker") return "";
  std::ifstream file(proc / "cmdline");
  const std::string arguments(std::istreambuf_iterator<char>(file), {});
  const auto has = [&](const char* option) { return arguments.find(option) != std::string::npos; };
  return has("--store") ? "store" : has("--ranks") ? "starter" : "worker";
}

}  // namespace

Memory memory_of(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  Memory memory;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    double kilobytes = 0;
    fields >> name >> kilobytes;
    if (name == "Rss:") memory.resident_mb += kilobytes / 1024;
    if (name == "Private_Clean:" || name == "Private_Dirty:") memory.own_mb += kilobytes / 1024;
  }
  return memory;
}

std::map<std::string, Memory> memory_by_role() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  std::map<std::string, Memory> result{{"shell", memory_of(::getpid())}};
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    const std::string role = role_of(std::stoll(name), folder);
    if (role.empty()) continue;
    const Memory memory = memory_of(std::stoll(name));
    if (memory.resident_mb > result[role].resident_mb) result[role] = memory;
  }
  return result;
}

}  // namespace lockstep::benchmark
