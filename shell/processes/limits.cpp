#include "shell/processes/limits.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "protocol/blocked_signals.h"
#include "protocol/error.h"

namespace lockstep::shell {

constexpr rlim_t kUsualStack = 8 << 20;

void raise_stack_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kUsualStack)
    return;  // RLIM_INFINITY is the largest number
  rlimit more{.rlim_cur = kUsualStack, .rlim_max = std::max(limit.rlim_max, kUsualStack)};
  if (::setrlimit(RLIMIT_STACK, &more) == 0) return;
  more = {.rlim_cur = std::min(kUsualStack, limit.rlim_max),
          .rlim_max = limit.rlim_max};  // only root raises the second
  ::setrlimit(RLIMIT_STACK, &more);
}

std::string stack_shortage() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kUsualStack) return "";
  return fmt::format(
      "the stack is limited to {} kB, and ranks and compiler may die of SIGSEGV for want of more: "
      "`ulimit -s 8192` in the shell that starts lockstep, or /etc/security/limits.conf",
      limit.rlim_cur / 1024);
}

void require_threads(int count, const std::string& what) {
  const BlockedSignals signals;  // they are the main thread's
  std::latch over(1);
  std::vector<std::thread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&over] { over.wait(); });
  } catch (const std::system_error&) {  // there are fewer than `count`, which is the answer
  }
  over.count_down();
  for (std::thread& each : threads) each.join();
  if (std::ssize(threads) >= count) return;
  rlimit limit = {};
  const bool limited = ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  throw StartError(
      fmt::format("{} needs some {} processes and threads, and {} more can be started: {}", what, count, threads.size(),
                  limited ? fmt::format("this user may have {} (ulimit -u); raise that with ulimit -u {}, or in "
                                        "/etc/security/limits.conf; in a container its pids limit counts as well",
                                        limit.rlim_cur, std::max<rlim_t>(4096, limit.rlim_cur * 2))
                          : "raise the pids limit of the container or of the user's slice (systemd's TasksMax)"));
}

}  // namespace lockstep::shell
