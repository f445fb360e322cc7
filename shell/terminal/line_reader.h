// Reads what a person types, one cell at a time: with an editor on a terminal (edit_line_reader.h), as plain lines
// otherwise (plain_line_reader.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "protocol/compiler_messages.h"
#include "shell/scripts/completeness.h"

namespace lockstep::shell {

/// A reader asks these of the session behind it.
struct LineReaderServices {
  /// Waits until `fd` is readable; other things (events of ranks) are served meanwhile.
  std::function<void(int fd)> wait;
  /// Is this text a whole cell? And how deep is the indentation of the next line? `is_pasted`: it came as one block, so
  /// that no further line is to be expected.
  std::function<Completeness(const std::string& text, bool is_pasted)> completeness;
  /// What could stand at byte `offset` of `text`?
  std::function<protocol::Completions(const std::string& text, int64_t offset)> complete;
  /// Returns the overloads of the call whose arguments stand there.
  std::function<std::vector<protocol::Signature>(const std::string& text, int64_t offset)> signatures;
};

class LineReader {
 public:
  virtual ~LineReader() = default;

  enum class End { cell, cancelled, end_of_input };
  struct Input {
    End end = End::cell;
    std::string text;  // without the last line end; cancelled: what had been typed
  };

  /// Reads a cell behind `prompt`, which may hold colours. Cancelled: Ctrl-C; what was typed is gone from the screen.
  virtual Input read(const std::string& prompt) = 0;
  /// Called between hide() and show(): the prompt has changed.
  virtual void set_prompt(const std::string& prompt) = 0;

  /// Take the prompt and what is typed off the screen, and put it back below what was drawn in between. Only while
  /// read() waits.
  virtual void hide() = 0;
  virtual void show() = 0;

  /// Adds a cell to the history that the arrow keys walk through.
  virtual void remember(const std::string& text) = 0;

  /// Takes what was typed before read() is called: it comes before what the terminal gives.
  virtual void type_ahead(const std::string& bytes) = 0;
  /// The end of the input was typed before read() is called (Ctrl-D): it comes behind all of that.
  virtual void end_ahead() = 0;
  /// Gives up what was read behind the last cell, or taken by type_ahead(). Empty where keys are read one by one: what
  /// follows a cell is still with the terminal then, and what was typed ahead waits for the prompt.
  virtual std::string take_ahead() = 0;

  /// Is Ctrl-C for a read() that waits. From a signal handler.
  virtual void interrupt() noexcept = 0;
};

}  // namespace lockstep::shell
