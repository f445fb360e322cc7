// Reads the collective logs of this machine's ranks every few milliseconds, for whoever compares their calls with those
// of ranks on other machines. Ranks are not asked and do not wait: an event for each call would cost them more than
// this.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/log/new_calls.h"
#include "shell/jobs/relay_messages.h"
#include "shell/processes/call_table.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class CallWatch {
 public:
  static constexpr std::chrono::milliseconds kEvery{5};

  /// `found` gets the calls that no rank here has made before: of ranks that call the same, that of the first. Calls of
  /// one group are in their order.
  CallWatch(EventLoop& loop, std::function<void(const std::vector<dist::NewCall>&)> found)
      : found_(std::move(found)), next_(loop) {}

  /// Reads the log at `path` from now on, which may come later, and be replaced, while the process has it.
  void add(int64_t pid, const std::string& path);
  /// Reads the log of a process that has ended a last time.
  void remove(int64_t pid);

 private:
  struct Watched {
    std::string path;
    ino_t file = 0;  // that is open; 0: none
    ino_t refused = 0;  // the file that was none of the process; it is tried again after a pause, then a longer one
    std::chrono::milliseconds pause{};
    EventLoop::Clock::time_point again_at;
    std::unique_ptr<dist::NewCalls> calls;
  };
  void look();
  void read(int64_t pid, Watched& rank, std::vector<dist::NewCall>& fresh);
  /// Removes the calls of groups whose ranks are all here: they compare these themselves.
  void leave_out_known(std::vector<dist::NewCall>& calls) const;

  const std::function<void(const std::vector<dist::NewCall>&)> found_;
  std::map<int64_t, Watched> ranks_;  // by pid
  CallTable table_;
  Deadline next_;
};

/// Returns the message that carries `calls`, and its frame.
std::pair<CallsMade, std::string> packed(const std::vector<dist::NewCall>& calls);
/// Returns the calls of such a message. Throws protocol::ChannelError where it is damaged.
std::vector<dist::NewCall> unpacked(const CallsMade& message, const std::string& signatures);

}  // namespace lockstep::shell
