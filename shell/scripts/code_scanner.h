// Walks the tokens of a cell's C++ and says at which lines a statement, and so a magic, may begin: outside brackets,
// comments, strings and preprocessor lines, and after `;`, `}` or the start. What does not compile is walked as well as it
// goes.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "shell/scripts/cpp_lexer.h"

namespace lockstep::shell {

class CodeScanner {
 public:
  explicit CodeScanner(std::string_view text) : lexer_(text) {}

  /// The next token; nothing where none begins before `limit`.
  std::optional<CppToken> next(size_t limit = std::string_view::npos);
  /// Whether a statement may begin with the line at this offset. Takes all tokens before it.
  bool may_begin(size_t line);
  /// A magic stands between here and `end`, and no C++.
  void skip_magic(size_t end);

  int depth() const { return static_cast<int>(open_.size()); }  // open brackets
  /// Whether a bracket has closed one that was not open.
  bool is_mismatched() const { return is_mismatched_; }
  /// The parenthesis of the call whose arguments come next; nothing where the innermost bracket is none of a call.
  std::optional<size_t> open_call() const;

 private:
  struct Bracket {
    char close;  // what closes it
    size_t begin;
    bool has_statements = false;  // a ; stands in it
  };
  CppLexer lexer_;
  std::vector<Bracket> open_;
  bool is_mismatched_ = false;
  char last_ = 0;  // last character of code
};

/// The innermost parenthesis of a call that is open at the end of `text`.
std::optional<size_t> open_call(std::string_view text);

}  // namespace lockstep::shell
