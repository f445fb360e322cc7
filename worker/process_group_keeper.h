// Keeps a list of process groups, and kills what is left of them when the session is over. A group is known by the pid
// and start time of its leader when it was given, so that an unrelated process with the same number is never hit.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace lockstep::worker {

class ProcessGroupKeeper {
 public:
  /// Takes "PID" and "-PID"; other lines mean nothing.
  void take_line(std::string_view line);
  void kill_all();
  size_t size() const { return groups_.size(); }

 private:
  std::map<pid_t, std::optional<uint64_t>> groups_;  // leader → its start time; nothing: it had ended already
};

}  // namespace lockstep::worker
