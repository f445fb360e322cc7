// Holds the text that is being edited, and where the cursor stands in it. Offsets are bytes of UTF-8, and always
// between characters.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::shell {

class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }
  std::string_view before_cursor() const { return std::string_view(text_).substr(0, cursor_); }

  /// Sets a new text, the cursor at its end; what was there can't be undone to.
  void reset(std::string text, size_t cursor = std::string::npos);
  /// Does the same as one change that can be undone.
  void set(std::string text, size_t cursor = std::string::npos);
  void insert(std::string_view text);
  void replace(size_t begin, size_t end, std::string_view text);
  bool undo();
  bool redo();

  // These delete. Those that are called cut keep the text for yank(); cuts that follow one another keep all of it.
  void erase_before();
  void erase_at();
  void cut_word_before();
  void cut_word_after();
  void cut_to_line_begin();
  void cut_to_line_end();  // at its end: the line end itself
  void yank();

  // These move the cursor.
  void move_to(size_t offset) { cursor_ = offset, goal_column_ = kNone; }
  void move_left();
  void move_right();
  void move_word_left() { move_to(word_before()); }
  void move_word_right() { move_to(word_after()); }
  void move_to_line_begin() { move_to(line_begin()); }
  void move_to_line_end() { move_to(line_end()); }
  /// Moves down by `lines`, or up; as far as there are lines, in the column where the first such movement began.
  /// Returns false where it is there already.
  bool move_lines(int lines);

  size_t line_begin() const;
  size_t line_end() const;
  bool on_first_line() const { return line_begin() == 0; }
  bool on_last_line() const { return line_end() == text_.size(); }

 private:
  static constexpr size_t kNone = std::string::npos;
  struct State {
    std::string text;
    size_t cursor;
  };

  size_t before(size_t offset) const;
  size_t after(size_t offset) const;
  size_t word_before() const;
  size_t word_after() const;
  void change(size_t begin, size_t end, std::string_view text, bool is_typing);
  void cut(size_t begin, size_t end, bool is_forward);

  std::string text_;
  size_t cursor_ = 0;
  size_t goal_column_ = kNone;  // characters from the line's begin
  std::string cut_;
  bool last_was_cut_ = false, last_was_typing_ = false;
  std::vector<State> undo_, redo_;
};

}  // namespace lockstep::shell
