#include "shell/terminal/raw_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "protocol/error.h"

namespace lockstep::shell {

RawTerminal::RawTerminal() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw StartError(std::string("no pipe for the terminal: ") + std::strerror(errno));
  wake_reader_ = Descriptor(ends[0]);
  wake_writer_ = Descriptor(ends[1]);
  wait_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (!wait_ || ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0 ||
      ::epoll_ctl(wait_.get(), EPOLL_CTL_ADD, wake_reader_.get(), &event) != 0)
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
    const ssize_t count = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (count < 0 && errno == EAGAIN) {
      pollfd poll{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&poll, 1, -1);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

bool RawTerminal::has_input_within(int milliseconds) const {
  pollfd poll{STDIN_FILENO, POLLIN, 0};
  return ::poll(&poll, 1, milliseconds) > 0;
}

ssize_t RawTerminal::read(char* bytes, size_t size) const {
  const ssize_t count = ::read(STDIN_FILENO, bytes, size);
  if (count >= 0) return count;
  return errno == EINTR || errno == EAGAIN ? -1 : 0;
}

void RawTerminal::wake(char what) noexcept {
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(wake_writer_.get(), &what, 1);
  errno = error;
}

std::optional<char> RawTerminal::next_wake() {
  char what;
  if (::read(wake_reader_.get(), &what, 1) != 1) return {};
  return what;
}

}  // namespace lockstep::shell
