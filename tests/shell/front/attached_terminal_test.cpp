// The terminal's side of a detachable session, whose keeper is the test.
#include "shell/detached/attached_terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <thread>

#include "protocol/descriptor_messages.h"

namespace lockstep::shell {
namespace {

/// A keeper that takes nothing for a while, and a change of the size meanwhile, cost no key.
TEST(AttachedTerminal, SendsAllKeysToAKeeperThatIsSlow) {
  auto [keeper, of_terminal] = make_message_sockets();
  const int small = 4096;
  ::setsockopt(of_terminal.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  set_nonblocking(of_terminal.get());
  int fd = -1;
  const pid_t pid = ::forkpty(&fd, nullptr, nullptr, nullptr);
  if (pid == 0) {
    keeper.reset();
    ::_exit(run_attached(std::move(of_terminal), /*watches=*/false));
  }
  const Descriptor person(fd);
  of_terminal.reset();
  // Raw mode, so that nothing is echoed and the terminal holds back what is not read.
  termios settings = {};
  while (::tcgetattr(fd, &settings) == 0 && (settings.c_lflag & ICANON) != 0) std::this_thread::yield();
  set_nonblocking(fd);
  std::string typed;
  while (is_ready(fd, POLLOUT, std::chrono::milliseconds(300))) {
    const std::string keys(1000, static_cast<char>('a' + typed.size() / 1000 % 26));
    const ssize_t count = ::write(fd, keys.data(), keys.size());
    if (count > 0) typed += keys.substr(0, static_cast<size_t>(count));
  }
  const winsize size = {.ws_row = 40, .ws_col = 132, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(fd, TIOCSWINSZ, &size), 0);
  std::string keys, sizes;
  while (keys.size() < typed.size() || sizes.empty()) {
    if (!is_ready(keeper.get(), POLLIN, std::chrono::seconds(20))) break;
    const Received mail = receive_mail(keeper.get());
    if (mail.found != Reading::bytes) break;
    if (mail.kind == Mail::keys) keys += mail.body;
    if (mail.kind == Mail::size) sizes += mail.body;
  }
  EXPECT_TRUE(keys == typed) << keys.size() << " of " << typed.size() << " keys have come";
  EXPECT_NE(sizes.find("132"), std::string::npos);
  send_json(keeper.get(), Mail::leave, LeaveTerminal{"", 7});
  int status = 0;
  EXPECT_EQ(uninterrupted([&] { return ::waitpid(pid, &status, 0); }), pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace lockstep::shell
