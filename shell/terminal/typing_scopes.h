// What a terminal does differently while something goes on.
#pragma once
#include <termios.h>
#include <unistd.h>

#include <atomic>

namespace lockstep::shell {

/// While it lives, what is typed while a cell runs is kept for the prompt, but not written into the cell's output.
class NoEcho {
 public:
  NoEcho() : works_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!works_) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    // At Ctrl-C the kernel would throw away what the terminal has not shown yet, and with it what we say about the
    // interrupt.
    quiet.c_lflag |= NOFLSH;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);  // not when all is shown: a terminal may have been stopped (Ctrl-S)
  }
  ~NoEcho() {
    if (works_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  NoEcho(const NoEcho&) = delete;
  NoEcho& operator=(const NoEcho&) = delete;

 private:
  termios before_{};
  bool works_;
};

/// While it lives, Ctrl-C at the prompt has a question to the compiler given up.
class Asking {
 public:
  explicit Asking(std::atomic<bool>& asking) : asking_(asking) { asking_ = true; }
  ~Asking() { asking_ = false; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::atomic<bool>& asking_;
};

}  // namespace lockstep::shell
