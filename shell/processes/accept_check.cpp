#include "shell/processes/accept_check.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include "protocol/next_function.h"

namespace lockstep::shell {
namespace {

struct AcceptChecks {
  std::mutex mutex;
  std::vector<const AcceptCheck*> all;
};

/// Never destroyed: threads of ZeroMQ may outlive the program's statics.
AcceptChecks& accept_checks() {
  static auto* const checks = new AcceptChecks;
  return *checks;
}

}  // namespace

AcceptCheck::AcceptCheck(std::function<bool(int)> admits) : admits_(std::move(admits)) {
  const std::lock_guard lock(accept_checks().mutex);
  accept_checks().all.push_back(this);
}

AcceptCheck::~AcceptCheck() {
  const std::lock_guard lock(accept_checks().mutex);
  std::erase(accept_checks().all, this);
}

bool AcceptCheck::all_admit(int fd) {
  const std::lock_guard lock(accept_checks().mutex);
  return std::ranges::all_of(accept_checks().all, [&](const AcceptCheck* each) { return each->admits_(fd); });
}

}  // namespace lockstep::shell

/// Stands in front of the C library's, for libzmq.
extern "C" __attribute__((visibility("default"))) int accept4(int listener, sockaddr* address, socklen_t* size,
                                                              int flags) {
  auto* const real = lockstep::next_function<"accept4", decltype(::accept4)>();
  const int fd = real(listener, address, size, flags);
  if (fd < 0 || lockstep::shell::AcceptCheck::all_admit(fd)) return fd;
  ::close(fd);
  errno = ECONNABORTED;  // libzmq's listeners block: to accept again would hold its thread until somebody comes
  return -1;
}
