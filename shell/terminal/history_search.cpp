#include "shell/terminal/history_search.h"

#include "shell/text/text.h"

namespace lockstep::shell {

HistorySearch::Took HistorySearch::take(const Key& key) {
  using enum Key::Kind;
  switch (key.kind) {
    case text:
    case paste:
      words_ += key.text;
      look(-1, /*stay=*/true);
      return Took::key;
    case backspace:
      while (!words_.empty() && is_continuation_byte(words_.back())) words_.pop_back();
      if (!words_.empty()) words_.pop_back();
      index_ = history_.size();
      look(-1, /*stay=*/true);
      return Took::key;
    case control:
      if (key.letter == 'r' || key.letter == 's') {
        look(key.letter == 'r' ? -1 : 1, /*stay=*/false);
        return Took::key;
      }
      if (key.letter == 'g' || key.letter == 'c') {
        buffer_.reset(typed_, cursor_);
        return Took::last_key;
      }
      return Took::nothing;
    case escape:
    case enter:  // the cell can be changed now, and another Enter runs it
      if (index_ < history_.size() && !has_failed_) {
        history_.found(index_, typed_);
        buffer_.move_to(buffer_.text().size());
      }
      return Took::last_key;
    default:
      return Took::nothing;
  }
}

/// With `stay`, the cell that is shown may be the one; otherwise it is the next one in that direction.
void HistorySearch::look(int direction, bool stay) {
  if (words_.empty()) return;
  const auto is_end = [&](size_t index) { return direction < 0 ? index == 0 : index + 1 >= history_.size(); };
  const auto next = [&](size_t index) { return direction < 0 ? index - 1 : index + 1; };
  has_failed_ = true;
  size_t index = index_;
  if (!stay || index >= history_.size()) {
    if (is_end(index)) return;
    index = next(index);
  }
  for (;; index = next(index)) {
    const size_t at = history_[index].find(words_);
    if (at != std::string::npos && (stay || history_[index] != buffer_.text())) {
      index_ = index;
      has_failed_ = false;
      buffer_.reset(history_[index], at);
      return;
    }
    if (is_end(index)) return;
  }
}

}  // namespace lockstep::shell
