// Work that is done in copies of this process (fork), several at a time. A process has one session at a time, which
// belongs to one thread; copies of the process have one each.
#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::shell {

class ProcessCopies {
 public:
  static constexpr size_t kMost = 16;

  /// Calls work(0) to work(count - 1), each in a copy of its own, `at_once` (1 to kMost) at a time. Returns what they
  /// return, in order. This process must have no other thread and no other child. Copies get SIGTERM when it ends, and
  /// do not run what it has registered for its end. Throws StartError with the message of the first that threw or ended
  /// otherwise; the others are ended.
  std::vector<std::string> run(size_t count, size_t at_once, const std::function<std::string(size_t)>& work);

  /// From a signal handler: passes the signal on to copies that run, and no further one is started. run() throws.
  void pass_on(int signal) noexcept;

 private:
  std::array<std::atomic<pid_t>, kMost> running_{};
  std::atomic<int> signal_{0};
};

}  // namespace lockstep::shell
