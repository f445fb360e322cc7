#include "shell/scripts/code_scanner.h"

namespace lockstep::shell {

std::optional<CppToken> CodeScanner::next(size_t limit) {
  const std::optional<CppToken> token = lexer_.next(limit);
  if (!token || token->in_directive || token->kind == CppToken::comment) return token;
  last_ = token->text.back();
  if (token->kind != CppToken::punctuation) return token;
  if (last_ == '(' || last_ == '[' || last_ == '{') {
    open_.push_back({last_ == '(' ? ')' : last_ == '[' ? ']' : '}', token->begin});
  } else if (last_ == ')' || last_ == ']' || last_ == '}') {
    is_mismatched_ |= open_.empty() || open_.back().close != last_;
    if (!open_.empty()) open_.pop_back();
  } else if (last_ == ';' && !open_.empty()) {
    open_.back().has_statements = true;
  }
  return token;
}

std::optional<size_t> CodeScanner::open_call() const {
  if (open_.empty() || open_.back().close != ')' || open_.back().has_statements) return std::nullopt;
  return open_.back().begin;
}

bool CodeScanner::may_begin(size_t line) {
  while (next(line)) {
  }
  return lexer_.has_line_at(line) && open_.empty() && (last_ == 0 || last_ == ';' || last_ == '}');
}

void CodeScanner::skip_magic(size_t end) {
  lexer_.seek(end);
  last_ = 0;
}

std::optional<size_t> open_call(std::string_view text) {
  CodeScanner scanner(text);
  while (scanner.next()) {
  }
  return scanner.open_call();
}

}  // namespace lockstep::shell
