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

/// While it lives, `handler` gets SIGINT, SIGTERM, SIGHUP and SIGQUIT. One at a time.
class SignalScope {
 public:
  explicit SignalScope(void (*handler)(int signal)) {
    for (const int signal : kSignals) handle_signal(signal, handler);
  }
  ~SignalScope() {
    for (const int signal : kSignals) ::signal(signal, SIG_DFL);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
};

}  // namespace lockstep::shell
