#include "shell/detached/attached_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "protocol/error.h"
#include "shell/processes/signal_scope.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kAnswerTime{5};
constexpr char kStop = 0x1a, kInterrupt = 0x03, kEnd = 0x04;  // Ctrl-Z, Ctrl-C, Ctrl-D

TerminalSize size_of_terminal() {
  winsize size = {};
  ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return {size.ws_col, size.ws_row};
}

std::string variable_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

class AttachedTerminal {
 public:
  AttachedTerminal(Descriptor keeper, bool watches) : keeper_(std::move(keeper)), watches_(watches) {
    // A description of its own: the user's shell shares ours, and its flags.
    output_ = Descriptor(::open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    sigset_t taken;
    ::sigemptyset(&taken);
    for (const int signal : kEndingSignals) ::sigaddset(&taken, signal);
    for (const int signal : {SIGINT, SIGWINCH}) ::sigaddset(&taken, signal);
    ::sigprocmask(SIG_BLOCK, &taken, nullptr);  // for good: the program ends next, with the exit code of run()
    signals_ = Descriptor(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
    make_raw();
  }
  ~AttachedTerminal() { give_back(); }
  AttachedTerminal(const AttachedTerminal&) = delete;
  AttachedTerminal& operator=(const AttachedTerminal&) = delete;

  int run() {
    while (!exit_code_) {
      // What comes is not taken as long as the terminal has no room: the keeper then sees that it is slow.
      pollfd polled[] = {{STDIN_FILENO, POLLIN, 0},
                         {unshown_.empty() && !is_left_ ? keeper_.get() : -1, POLLIN, 0},
                         {unshown_.empty() ? -1 : output(), POLLOUT, 0},
                         {signals_.get(), POLLIN, 0}};
      poll_until(polled);
      if (polled[3].revents != 0) take_signals();
      if (polled[0].revents != 0) take_keys();
      if (polled[1].revents != 0) take_mail();
      show();
      if (is_left_ && unshown_.empty()) exit_code_ = exit_code_.value_or(last_.exit_code);
    }
    give_back();
    if (!last_.text.empty()) std::fputs(((ends_line_ ? "" : "\n") + last_.text + "\n").c_str(), stdout);
    std::fflush(stdout);
    return *exit_code_;
  }

 private:
  int output() const { return output_ ? output_.get() : STDOUT_FILENO; }

  void make_raw() {
    if (::tcgetattr(STDIN_FILENO, &settings_) != 0) return;
    termios raw = settings_;
    ::cfmakeraw(&raw);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    is_raw_ = true;
  }

  /// The settings of before, and no marks around what is pasted, which the session may have asked for.
  void give_back() {
    if (!std::exchange(is_raw_, false)) return;
    if (variable_or("TERM", "dumb") != "dumb") write_all(output(), "\033[?2004l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &settings_);
  }

  void take_signals() {
    signalfd_siginfo signal = {};
    while (read_all(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
      if (signal.ssi_signo == SIGWINCH)
        send_json(keeper_.get(), Mail::size, size_of_terminal());
      else
        exit_code_ = 128 + static_cast<int>(signal.ssi_signo);
    }
  }

  void take_keys() {
    std::string keys;
    const Reading found = read_some(STDIN_FILENO, keys, 4096);
    if (found == Reading::empty) return;
    if (found != Reading::bytes) {  // the terminal is gone
      exit_code_ = 128 + SIGHUP;
      return;
    }
    if (watches_) {
      if (keys.find_first_of(std::string{'q', kInterrupt, kEnd}) != std::string::npos) exit_code_ = 0;
      return;
    }
    const size_t stop = keys.find(kStop);
    send_keys(std::string_view(keys).substr(0, stop));
    if (stop == std::string::npos) return;
    stop_here();
    send_keys(std::string_view(keys).substr(stop + 1));
  }

  /// Waits for room: a session that takes no keys has been given 64 KB that it has not read.
  void send_keys(std::string_view keys) {
    if (keys.empty()) return;
    while (!send_mail(keeper_.get(), Mail::keys, keys)) {
      if (errno != EAGAIN) return;  // take_mail() sees the end
      pollfd polled[] = {{keeper_.get(), POLLOUT, 0}, {signals_.get(), POLLIN, 0}};
      poll_until(polled);
      if (polled[1].revents != 0) return take_signals();
    }
  }

  /// Ctrl-Z: what it stops is this process, and not the session.
  void stop_here() {
    give_back();
    ::kill(0, SIGTSTP);
    make_raw();
    send_json(keeper_.get(), Mail::size, size_of_terminal());
    send_mail(keeper_.get(), Mail::redraw);
  }

  void take_mail() {
    Received mail = receive_mail(keeper_.get());
    if (mail.found == Reading::empty) return;
    if (mail.found != Reading::bytes) {
      last_ = {.text = "the connection to the session has ended; lockstep sessions list says whether it runs",
               .exit_code = 1};
      is_left_ = true;
    } else if (mail.kind == Mail::output) {
      unshown_ = std::move(mail.body);
      ends_line_ = unshown_.ends_with('\n');
    } else if (mail.kind == Mail::leave) {
      last_ = read_json<LeaveTerminal>(mail.body).value_or(LeaveTerminal{.text = {}, .exit_code = 1});
      is_left_ = true;
    }
  }

  void show() {
    while (!unshown_.empty()) {
      const ssize_t count = uninterrupted([&] { return ::write(output(), unshown_.data(), unshown_.size()); });
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) {  // it is gone
        exit_code_ = 128 + SIGHUP;
        return;
      }
      unshown_.erase(0, static_cast<size_t>(count));
    }
  }

  Descriptor keeper_;
  const bool watches_;
  Descriptor output_, signals_;
  termios settings_ = {};
  bool is_raw_ = false;
  std::string unshown_;
  bool ends_line_ = true;
  bool is_left_ = false;
  LeaveTerminal last_;
  std::optional<int> exit_code_;
};

}  // namespace

TerminalHello describe_terminal(const std::string& asks) {
  const char* name = ::ttyname(STDIN_FILENO);
  std::string words = name ? name : "a terminal";
  const std::string from = variable_or("SSH_CONNECTION", "");
  if (!from.empty()) words += " from " + without_controls(from.substr(0, from.find(' ')));
  return {.asks = asks, .name = words, .type = variable_or("TERM", "dumb"), .size = size_of_terminal()};
}

KeeperAnswer answer_of(int keeper) {
  Received answer;
  if (is_ready(keeper, POLLIN, kAnswerTime)) answer = receive_mail(keeper);
  if (answer.found == Reading::bytes && answer.kind == Mail::leave)
    throw StartError(read_json<LeaveTerminal>(answer.body).value_or(LeaveTerminal()).text);
  if (answer.found != Reading::bytes || answer.kind != Mail::answer)
    throw UsageError("the keeper of the session does not answer: has it been stopped?");
  const KeeperAnswer given = read_json<KeeperAnswer>(answer.body).value_or(KeeperAnswer());
  if (!given.is_accepted) throw UsageError(given.problem.empty() ? "the session takes no terminal" : given.problem);
  return given;
}

int run_attached(Descriptor keeper, bool watches) { return AttachedTerminal(std::move(keeper), watches).run(); }

}  // namespace lockstep::shell
