#include "shell/terminal/line_buffer.h"

#include <algorithm>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr size_t kLongestEscape = 64;

/// Does an escape sequence begin `text` that goes on beyond it?
bool is_cut_escape(std::string_view text) {
  if (text.size() > kLongestEscape) return false;
  if (text.size() == 1) return true;
  if (text[1] == '[') return text.size() == 2 || static_cast<unsigned char>(text[escape_length(text) - 1]) < 0x40;
  if (text[1] == ']')
    return text.find('\a') == std::string_view::npos && text.find('\033', 1) == std::string_view::npos;
  return false;
}

}  // namespace

void LineBuffer::append(std::string_view bytes, const TakeLine& line) {
  std::string joined;
  if (!carry_.empty()) {
    joined = carry_ + std::string(bytes);
    carry_.clear();
    bytes = joined;
  }
  while (!bytes.empty()) {
    const char c = bytes.front();
    if (c == '\n') {
      line(text_);
      text_.clear();
      cursor_ = 0;
      bytes.remove_prefix(1);
    } else if (c == '\r') {
      cursor_ = 0;
      bytes.remove_prefix(1);
    } else if (c == '\b') {
      if (cursor_ > 0) --cursor_;
      while (cursor_ > 0 && is_continuation_byte(text_[cursor_])) --cursor_;
      bytes.remove_prefix(1);
    } else if (c == '\033') {
      if (is_cut_escape(bytes)) {
        carry_ = bytes;
        return;
      }
      const size_t length = escape_length(bytes);
      control(bytes.substr(0, length));
      bytes.remove_prefix(length);
    } else if (cursor_ == text_.size()) {
      const size_t run = std::min(bytes.find_first_of("\n\r\b\033"), bytes.size());
      text_ += bytes.substr(0, run);
      cursor_ = text_.size();
      bytes.remove_prefix(run);
      if (text_.size() > kLongest) {
        line(text_);
        text_.clear();
        cursor_ = 0;
      }
    } else {
      if (unfinished_utf8(bytes) == bytes.size()) {
        carry_ = bytes;
        return;
      }
      const size_t length = first_character(bytes).bytes;
      put(bytes.substr(0, length));
      bytes.remove_prefix(length);
    }
  }
}

/// Writes one character over what stands at the cursor, its colours and accents included.
void LineBuffer::put(std::string_view piece) {
  size_t end = skip_escapes(cursor_);
  if (end < text_.size()) end += first_character(std::string_view(text_).substr(end)).bytes;
  while (end < text_.size()) {
    const Character next = first_character(std::string_view(text_).substr(end));
    if (next.code < 0x300 || character_width(next.code) != 0) break;
    end += next.bytes;
  }
  text_.replace(cursor_, end - cursor_, piece);
  cursor_ += piece.size();
}

/// Keeps colours, does erasing, and leaves out all other movements on the screen.
void LineBuffer::control(std::string_view sequence) {
  if (sequence.size() < 3 || sequence[1] != '[') return;
  if (sequence.back() == 'm') {
    text_.insert(cursor_, sequence);
    cursor_ += sequence.size();
  } else if (sequence.back() == 'K') {
    if (sequence[2] == '2')
      text_.clear();
    else if (sequence[2] != '1')
      text_.resize(cursor_);
    cursor_ = std::min(cursor_, text_.size());
  }
}

size_t LineBuffer::skip_escapes(size_t at) const {
  while (at < text_.size() && text_[at] == '\033') at += escape_length(std::string_view(text_).substr(at));
  return at;
}

std::string LineBuffer::take() {
  std::string line = std::move(text_) + carry_;
  text_.clear();
  carry_.clear();
  cursor_ = 0;
  return line;
}

}  // namespace lockstep::shell
