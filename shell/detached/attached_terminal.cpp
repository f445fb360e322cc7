#include "shell/detached/attached_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/read_struct.h"
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

std::string terminal_type() {
  const std::string type = protocol::variable("TERM");
  return type.empty() ? "dumb" : type;
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
      // Nor are keys, as long as the session takes none: its keeper has 64 KB that it has not read.
      const bool takes_mail = unshown_.empty() && !is_left_, has_keys = !unsent_.empty() || is_resized_ || is_redrawn_;
      const int events = (takes_mail ? POLLIN : 0) | (has_keys ? POLLOUT : 0);
      pollfd polled[] = {{unsent_.empty() ? STDIN_FILENO : -1, POLLIN, 0},
                         {events != 0 ? keeper_.get() : -1, static_cast<short>(events), 0},
                         {unshown_.empty() ? -1 : output(), POLLOUT, 0},
                         {signals_.get(), POLLIN, 0}};
      poll_until(polled);
      if (polled[3].revents != 0) take_signals();
      if (polled[0].revents != 0) take_keys();
      if (takes_mail && polled[1].revents != 0) take_mail();
      send();
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
    if (terminal_type() != "dumb") write_all(output(), "\033[?2004l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &settings_);
  }

  void take_signals() {
    signalfd_siginfo signal = {};
    while (read_all(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
      if (signal.ssi_signo == SIGWINCH)
        is_resized_ = true;
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
    unsent_ += keys.substr(0, stop);
    if (stop == std::string::npos) return;
    send();
    stop_here();
    unsent_ += keys.substr(stop + 1);
  }

  /// Sends what the keeper is to know, as much as there is room for.
  void send() {
    bool is_sent = true;
    while (is_sent && !unsent_.empty())
      if ((is_sent = send_mail(keeper_.get(), Mail::keys, unsent_))) unsent_.erase(0, kMostMail);
    if (is_sent && is_resized_) is_resized_ = !(is_sent = send_json(keeper_.get(), Mail::size, size_of_terminal()));
    if (is_sent && is_redrawn_) is_redrawn_ = !(is_sent = send_mail(keeper_.get(), Mail::redraw));
    if (is_sent || errno == EAGAIN) return;
    unsent_.clear();  // the keeper is gone, which take_mail() sees
    is_resized_ = is_redrawn_ = false;
  }

  /// Ctrl-Z: what it stops is this process, and not the session.
  void stop_here() {
    give_back();
    ::kill(0, SIGTSTP);
    make_raw();
    is_resized_ = is_redrawn_ = true;
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
      last_ = protocol::read_struct<LeaveTerminal>(mail.body).value_or(LeaveTerminal{.text = {}, .exit_code = 1});
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
  std::string unshown_, unsent_;  // output, and keys
  bool is_resized_ = false, is_redrawn_ = false;  // which the keeper does not know yet
  bool ends_line_ = true;
  bool is_left_ = false;
  LeaveTerminal last_;
  std::optional<int> exit_code_;
};

}  // namespace

TerminalHello describe_terminal(Asks asks) {
  const char* name = ::ttyname(STDIN_FILENO);
  std::string words = name ? name : "a terminal";
  const std::string from = protocol::variable("SSH_CONNECTION");
  if (!from.empty()) words += " from " + without_controls(from.substr(0, from.find(' ')));
  return {
      .protocol = kProtocolVersion, .asks = asks, .name = words, .type = terminal_type(), .size = size_of_terminal()};
}

KeeperAnswer answer_of(int keeper) {
  Received answer;
  if (is_ready(keeper, POLLIN, kAnswerTime)) answer = receive_mail(keeper);
  if (answer.found == Reading::bytes && answer.kind == Mail::leave)
    throw StartError(protocol::read_struct<LeaveTerminal>(answer.body).value_or(LeaveTerminal()).text);
  if (answer.found != Reading::bytes || answer.kind != Mail::answer)
    throw UsageError("the keeper of the session does not answer: has it been stopped?");
  const KeeperAnswer given = protocol::read_struct<KeeperAnswer>(answer.body).value_or(KeeperAnswer());
  if (!given.is_accepted) throw UsageError(given.problem.empty() ? "the session takes no terminal" : given.problem);
  return given;
}

int run_attached(Descriptor keeper, bool watches) { return AttachedTerminal(std::move(keeper), watches).run(); }

}  // namespace lockstep::shell
