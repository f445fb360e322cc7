// A stopped process in the place of a store: the kernel completes connections to its port, and nobody answers. And the
// limit of those that must not wait for it.
#pragma once
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace lockstep::testing {

/// No test lives to see it: what waits for it hangs, and the test ends by its own limit.
constexpr auto kNever = std::chrono::hours(1);

class SilentListener {
 public:
  /// Listens on `port` of 127.0.0.1, which a store has just given up.
  explicit SilentListener(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
  }
  ~SilentListener() { close(fd_); }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  /// Waits for a connection. The caller closes it.
  int take() const { return accept(fd_, nullptr, nullptr); }

 private:
  const int fd_;
};

}  // namespace lockstep::testing
