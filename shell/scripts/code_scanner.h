// Walks C++ text line by line and says at which lines a statement may begin: outside brackets, comments, strings and
// preprocessor lines, and after `;`, `}` or the start. Lexical only; what does not compile is walked as well as it
// goes.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::shell {

class CodeScanner {
 public:
  /// Whether a statement may begin at the start of the next line.
  bool at_statement() const { return outside() && depth_ <= 0 && (last_ == 0 || last_ == ';' || last_ == '}'); }
  /// Takes the next line, without its newline.
  void take(std::string_view line);
  /// Whether what was taken so far goes on: an open bracket, comment or raw string, or a backslash at the end.
  bool unfinished() const { return !outside() || depth_ > 0; }
  int depth() const { return depth_ > 0 ? depth_ : 0; }  // open brackets
  /// A statement ended here without C++ to show it: a magic stood there.
  void end_statement() { last_ = 0; }

 private:
  bool outside() const { return state_ == State::code && !continued_; }
  void take_code(std::string_view line, size_t& i);

  enum class State { code, block_comment, raw_string };
  State state_ = State::code;
  std::string raw_end_;  // `)delimiter"`
  int depth_ = 0;  // of ( [ {
  char last_ = 0;  // last character of code that is no blank
  bool continued_ = false;  // a backslash ended the last line
  bool directive_ = false;  // the continued line is a preprocessor directive
  bool line_comment_ = false;  // ... or a comment
};

}  // namespace lockstep::shell
