#include "shell/detached/detachable_start.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/descriptor_messages.h"
#include "protocol/error.h"
#include "shell/detached/keeper.h"

namespace lockstep::shell {
namespace {

/// The sides of a pseudo-terminal with the settings and the size of standard input.
struct PseudoTerminal {
  Descriptor master, slave;
};

PseudoTerminal make_pseudo_terminal() {
  PseudoTerminal made;
  made.master = Descriptor(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (made.master && ::grantpt(made.master.get()) == 0 && ::unlockpt(made.master.get()) == 0)
    made.slave = Descriptor(::ioctl(made.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!made.slave)
    throw StartError(std::string("a pseudo-terminal could not be made: ") + std::strerror(errno) +
                     "; without --detachable none is needed");
  termios settings = {};
  winsize size = {};
  if (::tcgetattr(STDIN_FILENO, &settings) == 0) ::tcsetattr(made.slave.get(), TCSANOW, &settings);
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) ::ioctl(made.master.get(), TIOCSWINSZ, &size);
  return made;
}

/// The login manager removes /run/user/UID with the last login of the user, unless they linger. A session that outlives
/// its login has its folder in /tmp then.
void leave_folder_of_login() {
  const char* const folder = std::getenv("XDG_RUNTIME_DIR");
  const passwd* const user = ::getpwuid(::geteuid());
  if (!folder || folder != "/run/user/" + std::to_string(::geteuid())) return;
  if (!user || ::access((std::string("/var/lib/systemd/linger/") + user->pw_name).c_str(), F_OK) != 0)
    ::unsetenv("XDG_RUNTIME_DIR");
}

pid_t make_copy() {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw StartError(std::string("no process could be started: ") + std::strerror(errno));
  return pid;
}

/// The session's process from here on: it leads a session of the kernel's whose terminal is `slave`.
void take_terminal(const Descriptor& slave) {
  ::signal(SIGHUP, SIG_DFL);  // its keeper ends it so, also under nohup
  ::setsid();
  ::ioctl(slave.get(), TIOCSCTTY, 0);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(slave.get(), fd);
}

}  // namespace

DetachableStart start_detachable(std::chrono::seconds time, const TerminalHello& hello) {
  leave_folder_of_login();
  PseudoTerminal terminal = make_pseudo_terminal();
  auto [front, keeper] = make_message_sockets();
  auto [to_session, to_keeper] = make_message_sockets();
  send_json(front.get(), Mail::hello, hello);  // it is there, however soon the session ends
  if (const pid_t between = make_copy(); between > 0) {
    int status = 0;
    uninterrupted([&] { return ::waitpid(between, &status, 0); });
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw StartError("no process could be started for the session");
    return {.keeper = {}, .terminal = std::move(front)};
  }
  front.reset();
  ::setsid();
  const pid_t keeper_pid = ::fork();
  if (keeper_pid != 0) ::_exit(keeper_pid > 0 ? 0 : 1);  // its parent is init: nobody waits for it
  const pid_t session = ::fork();
  if (session == 0) {
    terminal.master.reset();
    keeper.reset();
    to_session.reset();
    take_terminal(terminal.slave);
    set_nonblocking(to_keeper.get());
    return {.keeper = std::move(to_keeper), .terminal = {}};
  }
  terminal.slave.reset();
  to_keeper.reset();
  if (session < 0) {
    send_json(keeper.get(), Mail::leave, LeaveTerminal{"no process could be started for the session", 3});
    ::_exit(0);
  }
  ::umask(077);
  const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing.get(), fd);
  set_nonblocking(to_session.get());
  keep_session(std::move(terminal.master), std::move(to_session), session, std::move(keeper), time);
  return {.keeper = {}, .terminal = {}, .is_over = true};
}

}  // namespace lockstep::shell
