#include "worker/process_group_keeper.h"

#include <signal.h>

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::worker {

std::optional<uint64_t> start_time_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  // Field 2 is the program's name in parentheses and may hold anything; the start time is field 22.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    if (!(fields >> field)) return std::nullopt;
  return std::stoull(field);
}

void ProcessGroupKeeper::take_line(std::string_view line) {
  long number = 0;
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || rest != line.data() + line.size()) return;
  if (number < -1)
    groups_.erase(static_cast<pid_t>(-number));
  else if (number > 1)
    groups_[static_cast<pid_t>(number)] = start_time_of(static_cast<pid_t>(number));
}

void ProcessGroupKeeper::kill_all() {
  for (const auto& [pid, start] : groups_) {
    // Where the leader is gone its number can't have gone to another process while members of its group live.
    const auto now = start_time_of(pid);
    if (!now || now == start) ::kill(-pid, SIGKILL);
  }
  groups_.clear();
}

}  // namespace lockstep::worker
