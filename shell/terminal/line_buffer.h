// Holds the line that a stream is in the middle of, as a terminal would show it: carriage returns overwrite, backspaces
// step back, colours stay.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::shell {

class LineBuffer {
 public:
  using TakeLine = std::function<void(std::string_view)>;

  /// Takes bytes as they were written, cut anywhere; hands over each line that is complete, without its end.
  /// A line longer than kLongest is handed over in pieces, so that memory stays bounded.
  void append(std::string_view bytes, const TakeLine& line);

  /// Returns the unfinished line so far.
  std::string_view text() const { return text_; }
  bool empty() const { return text_.empty() && carry_.empty(); }
  /// Ends the unfinished line.
  std::string take();

  bool operator==(const LineBuffer&) const = default;

  static constexpr size_t kLongest = 2 << 20;

 private:
  void put(std::string_view piece);
  void control(std::string_view sequence);
  size_t skip_escapes(size_t at) const;

  std::string text_;
  size_t cursor_ = 0;  // byte at which the next character goes
  std::string carry_;  // beginning of a character or an escape sequence that the last piece of bytes cut off
};

}  // namespace lockstep::shell
