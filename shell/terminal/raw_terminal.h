// Sets the terminal for editing: keys come one by one and are not echoed, and signal handlers wake the reader.
#pragma once
#include <termios.h>

#include <optional>
#include <string>
#include <string_view>

#include "protocol/descriptor.h"

namespace lockstep::shell {

class RawTerminal {
 public:
  /// Standard input and output must be a terminal. Throws StartError where it can't be waited for.
  RawTerminal();
  /// Gives the terminal its settings back.
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  /// Keys come one by one from here on, and pasted blocks are marked. Ctrl-C and Ctrl-Z stay signals, so that a question
  /// to the compiler that takes long can be given up. Again, after another program had the terminal: sets it anew.
  void begin();
  /// Restores the settings from before begin().
  void end();

  /// Writes all of `bytes`, in order with what stdout has buffered.
  void write(std::string_view bytes) const;

  bool has_input() const { return has_input_within(0); }
  bool has_input_within(int milliseconds) const;
  /// Appends at most `most` bytes of what was typed to `bytes`.
  Reading read(std::string& bytes, size_t most) const { return read_some(STDIN_FILENO, bytes, most); }

  /// Makes next_wake() return `what` once. From a signal handler.
  void wake(char what) noexcept;
  std::optional<char> next_wake();

  /// Is readable where has_input() is true or a wake-up has come.
  int descriptor() const { return wait_.get(); }

 private:
  Pipe wake_ = make_pipe();
  Descriptor wait_;  // epoll over the terminal and wake_
  std::optional<termios> before_;  // the settings, since begin()
};

}  // namespace lockstep::shell
