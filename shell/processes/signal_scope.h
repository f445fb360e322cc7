// Handles signals. While a command has something to tidy up (a session's folder, its processes), signals that ask it to
// end must not end it where it stands.
#pragma once
#include <csignal>

namespace lockstep::shell {

/// Whether it is SIGHUP, and this program is to ignore it: nohup has said so.
inline bool is_ignored_hangup(int signal) {
  struct sigaction now = {};
  return signal == SIGHUP && ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

/// `handler` gets `signal` from here on, if that is not ignored by nohup; system calls that it interrupts go on.
inline void handle_signal(int signal, void (*handler)(int)) {
  if (is_ignored_hangup(signal)) return;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

/// The signals that ask a program to end, besides SIGINT.
inline constexpr int kEndingSignals[] = {SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// While it lives, `handler` gets SIGINT and kEndingSignals. There is one at a time.
class SignalScope {
 public:
  explicit SignalScope(void (*handler)(int signal)) {
    handle_signal(SIGINT, handler);
    for (const int signal : kEndingSignals) handle_signal(signal, handler);
  }
  ~SignalScope() {
    ::signal(SIGINT, SIG_DFL);
    for (const int signal : kEndingSignals)
      if (!is_ignored_hangup(signal)) ::signal(signal, SIG_DFL);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
};

}  // namespace lockstep::shell
