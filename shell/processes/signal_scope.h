// Handles signals. While a command has something to tidy up (a session's folder, its processes), signals that ask it to
// end must not end it where it stands.
#pragma once
#include <csignal>

namespace lockstep::shell {

/// `handler` gets `signal` from here on; system calls that it interrupts go on.
inline void handle_signal(int signal, void (*handler)(int)) {
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
    for (const int signal : kEndingSignals) ::signal(signal, SIG_DFL);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
};

}  // namespace lockstep::shell
