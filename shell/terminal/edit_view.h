// Draws a cell that is being edited: rows of the screen, and how they get there with few bytes. A cell taller than the
// screen is shown around the cursor, with marks where it goes on.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shell/terminal/highlight.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

struct Row {
  std::string bytes;  // with the sequences of its colours
  int width = 0;  // columns
  bool operator==(const Row&) const = default;
};

struct Frame {
  std::vector<Row> rows;
  size_t cursor_row = 0;
  int cursor_column = 0;
};

struct EditPicture {
  std::string prompt;  // may hold colours
  std::string continuation;  // before the second line and all after it; may hold colours
  std::string_view text;
  size_t cursor = 0;
  std::vector<Token> tokens;
  std::optional<std::pair<size_t, size_t>> brackets;  // that belong together
  std::vector<std::string> below;  // candidates, signatures: one row each, not wider than the screen
  bool limited = true;  // to the screen's height
};

/// `first_row` is the row of the cell that stands at the top of the screen; it changes as little as the cursor allows.
Frame frame_of(const EditPicture& picture, const Screen& screen, size_t& first_row);

/// Has the frame that is on the screen, and makes the bytes that make another of it.
class FrameWriter {
 public:
  /// Forgets the screen: the cursor stands at the beginning of an empty line, and nothing is drawn.
  void forget() { shown_ = {}, known_ = false; }
  /// Returns the bytes that draw `frame` in place of what is shown.
  std::string draw(Frame frame);
  /// Returns the bytes that take all of it away; the cursor then stands where its first row was.
  std::string erase();
  /// Takes another width of the screen: the terminal has wrapped rows that were longer.
  void resized(int columns);
  bool is_shown() const { return known_; }

 private:
  std::string to_top() const;

  Frame shown_;
  bool known_ = false;
};

}  // namespace lockstep::shell
