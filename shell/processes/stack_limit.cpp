#include "shell/processes/stack_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace lockstep::shell {
namespace {

constexpr rlim_t kUsual = 8 << 20;

}  // namespace

void raise_stack_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kUsual)
    return;  // RLIM_INFINITY is the largest number
  rlimit more{.rlim_cur = kUsual, .rlim_max = std::max(limit.rlim_max, kUsual)};
  if (::setrlimit(RLIMIT_STACK, &more) == 0) return;
  more = {.rlim_cur = std::min(kUsual, limit.rlim_max), .rlim_max = limit.rlim_max};  // only root raises the second
  ::setrlimit(RLIMIT_STACK, &more);
}

std::string stack_shortage() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kUsual) return "";
  return fmt::format(
      "the stack is limited to {} kB, and ranks and compiler may die of SIGSEGV for want of more: "
      "`ulimit -s 8192` in the shell that starts lockstep, or /etc/security/limits.conf",
      limit.rlim_cur / 1024);
}

}  // namespace lockstep::shell
