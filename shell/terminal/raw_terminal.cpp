#include "shell/terminal/raw_terminal.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::shell {

RawTerminal::RawTerminal() {
  set_nonblocking(wake_.read.get());
  set_nonblocking(wake_.write.get());
  wait_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (!wait_ || ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0 ||
      ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, wake_.read.get(), &event) != 0)
    throw StartError(std::string("can't wait for the terminal: ") + std::strerror(errno));
}

RawTerminal::~RawTerminal() { end(); }

void RawTerminal::begin() {
  termios settings;
  if (::tcgetattr(STDIN_FILENO, &settings) != 0) return;
  // After SIGCONT the settings are those of another program, or still these ones, where no shell has changed them.
  if (!before_ || (settings.c_lflag & ICANON)) before_ = settings;
  settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  settings.c_lflag |= ISIG | NOFLSH;
  settings.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON);
  settings.c_oflag |= OPOST | ONLCR;
  settings.c_cc[VMIN] = 1;
  settings.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &settings);
  write("\033[?2004h");
}

void RawTerminal::end() {
  if (!before_) return;
  write("\033[?2004l");
  ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  before_.reset();
}

void RawTerminal::write(std::string_view bytes) const {
  std::fflush(stdout);
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] { return ::write(STDOUT_FILENO, bytes.data(), bytes.size()); });
    pollfd room{STDOUT_FILENO, POLLOUT, 0};
    if (count > 0)
      bytes.remove_prefix(static_cast<size_t>(count));
    else if (errno != EAGAIN || poll_until({&room, 1}) < 0)
      return;
  }
}

bool RawTerminal::has_input_within(int milliseconds) const {
  return is_ready(STDIN_FILENO, POLLIN, std::chrono::milliseconds(milliseconds));
}

void RawTerminal::wake(char what) noexcept {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(wake_.write.get(), &what, 1);
  errno = error;
}

std::optional<char> RawTerminal::next_wake() {
  char what;
  if (::read(wake_.read.get(), &what, 1) != 1) return {};
  return what;
}

}  // namespace lockstep::shell
