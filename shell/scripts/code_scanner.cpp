#include "shell/scripts/code_scanner.h"

#include "shell/scripts/literals.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// The word that ends right before `end`.
std::string_view word_before(std::string_view line, size_t end) {
  size_t begin = end;
  while (begin > 0 && is_name_character(line[begin - 1])) --begin;
  return line.substr(begin, end - begin);
}

bool is_raw_prefix(std::string_view word) {
  return word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R";
}

}  // namespace

void CodeScanner::take(std::string_view line) {
  const bool goes_on = continued_;
  const bool was_directive = directive_, was_comment = line_comment_;
  const auto first = line.find_first_not_of(" \t\r");
  directive_ =
      state_ == State::code && (goes_on ? was_directive : first != std::string_view::npos && line[first] == '#');
  line_comment_ = goes_on && was_comment;
  if (!directive_ && !line_comment_)
    for (size_t i = 0; i < line.size();) {
      if (state_ == State::block_comment) {
        const auto end = line.find("*/", i);
        if (end == std::string_view::npos) break;
        state_ = State::code;
        i = end + 2;
      } else if (state_ == State::raw_string) {
        const auto end = line.find(raw_end_, i);
        if (end == std::string_view::npos) break;
        state_ = State::code;
        i = end + raw_end_.size();
      } else {
        take_code(line, i);
        if (line_comment_) break;
      }
    }
  continued_ = state_ == State::code && is_continued(line);
}

void CodeScanner::take_code(std::string_view line, size_t& i) {
  const char c = line[i];
  if (c == ' ' || c == '\t' || c == '\r' || c == '\\') {
    ++i;
  } else if (line.substr(i, 2) == "//") {
    line_comment_ = true;
  } else if (line.substr(i, 2) == "/*") {
    state_ = State::block_comment;
    i += 2;
  } else if (c == '"' && is_raw_prefix(word_before(line, i))) {
    const auto open = line.find('(', i);
    last_ = '"';
    if (open == std::string_view::npos) {
      i = line.size();
      return;
    }
    raw_end_ = ")" + std::string(line.substr(i + 1, open - i - 1)) + "\"";
    state_ = State::raw_string;
    i = open + 1;
  } else if (const auto literal = literal_at(line, i)) {
    last_ = c;
    i = literal->end;
  } else {
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c == ')' || c == ']' || c == '}') --depth_;
    last_ = c;
    ++i;
  }
}

}  // namespace lockstep::shell
