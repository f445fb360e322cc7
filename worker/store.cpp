#include "worker/store.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "collectives/log/marked_processes.h"
#include "collectives/transport/tcp_store.h"
#include "protocol/descriptor.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/whole_number.h"
#include "worker/process_group_keeper.h"

namespace lockstep::worker {
namespace {

constexpr rlim_t kMostBytes = rlim_t{256} << 20;  // a session's own keys are a few kilobytes

[[noreturn]] void fail(const std::string& what) { throw StartError(what + ": " + std::strerror(errno)); }

/// Returns the descriptor that a variable names; -1 where it is not set.
int descriptor(const char* name) {
  const std::string text = protocol::variable(name);
  if (text.empty()) return -1;
  const auto fd = protocol::whole_number<int>(text, 0);
  if (!fd || ::fcntl(*fd, F_GETFD) < 0)
    throw StartError(std::string(name) + " is '" + text + "', which is no open descriptor");
  return *fd;
}

/// Nobody has meant to listen on all interfaces.
void must_have_address(int listener) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.sin_family != AF_INET)
    fail("LOCKSTEP_LISTEN_FD is no socket of the internet");
  if (address.sin_addr.s_addr == htonl(INADDR_ANY)) throw StartError("the store's socket listens on all interfaces");
}

/// Takes lines from a pipe, whatever pieces they come in.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}

  /// Reads once. Returns false at the end of the pipe.
  template <typename Take>
  bool read(const Take& take) {
    const Reading found = read_some(fd_, text_);
    if (found != Reading::bytes) return found == Reading::empty;
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      take(std::string_view(text_).substr(0, end));
    return true;
  }

 private:
  int fd_;
  std::string text_;
};

void keep_until_the_end(int lifeline, int keeper_fd) {
  ProcessGroupKeeper keeper;
  const auto take = [&keeper](std::string_view line) { keeper.take_line(line); };
  Lines lifeline_lines(lifeline), keeper_lines(keeper_fd);
  std::array<pollfd, 2> watched = {{{lifeline, POLLIN, 0}, {keeper_fd, POLLIN, 0}}};
  while (poll_until(watched) >= 0) {
    // Lines that are already there count, even when the end is, too.
    if (watched[1].revents != 0 && !keeper_lines.read(take)) watched[1].fd = -1;
    if (watched[0].revents != 0 && !lifeline_lines.read(take)) break;
  }
  while (is_ready(watched[1].fd, POLLIN) && keeper_lines.read(take)) {
  }
  keeper.kill_all();
  // These left the groups. A session that was started in another one's cell has a folder of its own.
  if (const char* folder = std::getenv("LOCKSTEP_SESSION_DIR"); folder && *folder)
    dist::end_marked_processes({std::string("LOCKSTEP_SESSION_DIR=") + folder});
}

/// Keys that nobody deletes would grow without end, whoever of this user writes them. Past the limit memory runs out in
/// the store's thread, and the session goes on without a store.
void limit_size() {
  std::ifstream status("/proc/self/status");
  long data_kb = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmData:")) data_kb = std::atol(line.c_str() + std::strlen("VmData:"));
  if (data_kb <= 0) return;
  rlimit limit = {};
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(data_kb) * 1024 + kMostBytes;
  ::setrlimit(RLIMIT_DATA, &limit);
  std::set_terminate([] {
    constexpr std::string_view kText =
        "lockstep-worker --store: the store is full: it holds more than 256 MB of keys and values\n";
    (void)!::write(STDERR_FILENO, kText.data(), kText.size());
    ::_exit(4);
  });
}

}  // namespace

int run_store() {
  try {
    const int lifeline = descriptor("LOCKSTEP_LIFELINE_FD");
    if (lifeline < 0)
      throw StartError(
          "LOCKSTEP_LIFELINE_FD is not set: `lockstep` starts the store and tells it when the session ends");
    const int keeper = descriptor("LOCKSTEP_KEEPER_FD");
    const int listener = descriptor("LOCKSTEP_LISTEN_FD");
    if (listener >= 0) must_have_address(listener);
    const auto store = listener >= 0 ? dist::serve_store(listener) : dist::serve_store("127.0.0.1", 0);
    if (listener < 0) {
      std::puts(nlohmann::json{{"port", store->getPort()}}.dump().c_str());
      std::fflush(stdout);
    }
    limit_size();
    keep_until_the_end(lifeline, keeper);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-worker --store: %s\n", error.what());
    return 3;
  }
}

}  // namespace lockstep::worker
