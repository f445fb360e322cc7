#include "shell/terminal/edit_buffer.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr size_t kMostUndone = 200;

bool is_word_byte(char c) { return is_name_character(c) || static_cast<unsigned char>(c) >= 0x80; }

bool is_combining(char32_t code) { return code >= 0x300 && character_width(code) == 0; }

}  // namespace

void EditBuffer::reset(std::string text, size_t cursor) {
  text_ = std::move(text);
  cursor_ = std::min(cursor, text_.size());
  goal_column_ = kNone;
  last_was_cut_ = last_was_typing_ = false;
  undo_.clear();
  redo_.clear();
}

void EditBuffer::set(std::string text, size_t cursor) {
  change(0, text_.size(), text, /*is_typing=*/false);
  cursor_ = std::min(cursor, text_.size());
}

void EditBuffer::change(size_t begin, size_t end, std::string_view text, bool is_typing) {
  // Characters that are typed one after another are undone together, up to a blank.
  const bool goes_on = is_typing && last_was_typing_ && text.size() == 1 && text[0] != ' ' && text[0] != '\n';
  if (!goes_on) {
    undo_.push_back({text_, cursor_});
    if (undo_.size() > kMostUndone) undo_.erase(undo_.begin());
  }
  redo_.clear();
  text_.replace(begin, end - begin, text);
  cursor_ = begin + text.size();
  goal_column_ = kNone;
  last_was_typing_ = is_typing;
  last_was_cut_ = false;
}

void EditBuffer::insert(std::string_view text) { change(cursor_, cursor_, text, /*is_typing=*/true); }

void EditBuffer::replace(size_t begin, size_t end, std::string_view text) {
  change(begin, end, text, /*is_typing=*/false);
}

bool EditBuffer::undo() {
  if (undo_.empty()) return false;
  redo_.push_back({std::move(text_), cursor_});
  text_ = std::move(undo_.back().text);
  cursor_ = undo_.back().cursor;
  undo_.pop_back();
  last_was_typing_ = last_was_cut_ = false;
  return true;
}

bool EditBuffer::redo() {
  if (redo_.empty()) return false;
  undo_.push_back({std::move(text_), cursor_});
  text_ = std::move(redo_.back().text);
  cursor_ = redo_.back().cursor;
  redo_.pop_back();
  last_was_typing_ = last_was_cut_ = false;
  return true;
}

/// Goes one character back, with the marks that combine with it.
size_t EditBuffer::before(size_t offset) const {
  while (offset > 0) {
    do --offset;
    while (offset > 0 && is_continuation_byte(text_[offset]));
    if (!is_combining(first_character(std::string_view(text_).substr(offset)).code)) break;
  }
  return offset;
}

size_t EditBuffer::after(size_t offset) const {
  if (offset >= text_.size()) return text_.size();
  offset += first_character(std::string_view(text_).substr(offset)).bytes;
  while (offset < text_.size()) {
    const Character next = first_character(std::string_view(text_).substr(offset));
    if (!is_combining(next.code)) break;
    offset += next.bytes;
  }
  return offset;
}

size_t EditBuffer::word_before() const {
  size_t at = cursor_;
  while (at > 0 && !is_word_byte(text_[at - 1])) --at;
  while (at > 0 && is_word_byte(text_[at - 1])) --at;
  return at;
}

size_t EditBuffer::word_after() const {
  size_t at = cursor_;
  while (at < text_.size() && !is_word_byte(text_[at])) ++at;
  while (at < text_.size() && is_word_byte(text_[at])) ++at;
  return at;
}

void EditBuffer::erase_before() {
  if (cursor_ > 0) change(before(cursor_), cursor_, "", /*is_typing=*/false);
}

void EditBuffer::erase_at() {
  if (cursor_ < text_.size()) change(cursor_, after(cursor_), "", /*is_typing=*/false);
}

void EditBuffer::cut(size_t begin, size_t end, bool is_forward) {
  if (begin == end) return;
  const std::string piece = text_.substr(begin, end - begin);
  const bool goes_on = last_was_cut_;
  change(begin, end, "", /*is_typing=*/false);
  if (!goes_on)
    cut_ = piece;
  else
    cut_ = is_forward ? cut_ + piece : piece + cut_;
  last_was_cut_ = true;
}

void EditBuffer::cut_word_before() { cut(word_before(), cursor_, /*is_forward=*/false); }
void EditBuffer::cut_word_after() { cut(cursor_, word_after(), /*is_forward=*/true); }
void EditBuffer::cut_to_line_begin() { cut(line_begin(), cursor_, /*is_forward=*/false); }

void EditBuffer::cut_to_line_end() {
  const size_t end = line_end();
  cut(cursor_, end == cursor_ ? after(cursor_) : end, /*is_forward=*/true);
}

void EditBuffer::yank() { change(cursor_, cursor_, cut_, /*is_typing=*/false); }

void EditBuffer::move_left() { move_to(before(cursor_)); }
void EditBuffer::move_right() { move_to(after(cursor_)); }

size_t EditBuffer::line_begin() const {
  const size_t end = cursor_ == 0 ? std::string::npos : text_.rfind('\n', cursor_ - 1);
  return end == std::string::npos ? 0 : end + 1;
}

size_t EditBuffer::line_end() const { return std::min(text_.find('\n', cursor_), text_.size()); }

bool EditBuffer::move_lines(int lines) {
  size_t column = goal_column_;
  if (column == kNone) {
    column = 0;
    for (size_t at = line_begin(); at < cursor_; at = after(at)) ++column;
  }
  bool moved = false;
  for (; lines < 0 && !on_first_line(); ++lines, moved = true) cursor_ = line_begin() - 1;
  for (; lines > 0 && !on_last_line(); --lines, moved = true) cursor_ = line_end() + 1;
  if (!moved) return false;
  cursor_ = line_begin();
  const size_t end = line_end();
  for (size_t k = 0; k < column && cursor_ < end; ++k) cursor_ = after(cursor_);
  goal_column_ = column;
  return true;
}

}  // namespace lockstep::shell
