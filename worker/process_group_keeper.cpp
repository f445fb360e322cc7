#include "worker/process_group_keeper.h"

#include <signal.h>

#include "collectives/log/process_identity.h"
#include "protocol/whole_number.h"

namespace lockstep::worker {

void ProcessGroupKeeper::take_line(std::string_view line) {
  const long number = protocol::whole_number<long>(line).value_or(0);
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
