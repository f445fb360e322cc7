#include "worker/process_group_keeper.h"

#include <signal.h>

#include <charconv>

#include "collectives/log/process_identity.h"

namespace lockstep::worker {

void ProcessGroupKeeper::take_line(std::string_view line) {
  long number = 0;
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || rest != line.data() + line.size()) return;
  if (number < -1)
    groups_.erase(static_cast<pid_t>(-number));
  else if (number > 1)
    groups_[static_cast<pid_t>(number)] = dist::process_start_time(static_cast<pid_t>(number));
}

void ProcessGroupKeeper::kill_all() {
  for (const auto& [pid, start] : groups_) {
    // Where the leader is gone its number can't have gone to another process while members of its group live.
    const auto now = dist::process_start_time(pid);
    if (!now || now == start) ::kill(-pid, SIGKILL);
  }
  groups_.clear();
}

}  // namespace lockstep::worker
