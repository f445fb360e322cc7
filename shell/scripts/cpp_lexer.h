// The one reader of C++ text outside the compiler: tokens of cells and of what is being typed, for colours, for the
// question whether a text is complete, for the magics between statements, and for editors. Where a statement may begin is
// code_scanner.h, what an item of a cell is cpp_items.h.
//
// It reads as clang's lexer does before the preprocessor: a backslash at the end of a line, with or without blanks behind
// it, joins the next line everywhere but in raw strings; a quote that its line does not close ends with the line; zero
// bytes are blanks, and bytes beyond ASCII belong to words. It differs in two ways: punctuation comes in single
// characters, except `::`, `->` and `...`, and a name does not go on with \u00e4. Every text has tokens, whether it
// compiles or not, and the time that they take grows with its length alone.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::shell {

struct CppToken {
  /// hash: a # that begins a directive. string: also what stands between < and > after #include.
  enum Kind { word, number, string, raw_string, character, comment, punctuation, hash };
  Kind kind = word;
  std::string_view text;  // a view of the text that was read, with its joined lines
  size_t begin = 0;
  bool is_closed = true;  // false: a literal or a comment without its end
  bool in_directive = false;

  size_t end() const { return begin + text.size(); }
  bool is_word() const { return kind == word; }
  /// The text ends in it, and more text may close it.
  bool goes_on() const { return !is_closed && (kind == raw_string || kind == comment); }
  /// The text without the backslashes and line ends that join lines.
  std::string spelling() const;
};

class CppLexer {
 public:
  explicit CppLexer(std::string_view text, size_t begin = 0) : text_(text), at_(begin) {}

  /// Returns the next token; nothing where none begins before `limit`.
  std::optional<CppToken> next(size_t limit = std::string_view::npos);
  /// Goes on at `offset`.
  void seek(size_t offset) { at_ = offset; }
  /// Whether the last line that has begun, outside of tokens and not joined to the one before it, begins at `offset`.
  bool has_line_at(size_t offset) const { return line_begin_ == offset; }

 private:
  size_t past_splices(size_t i) const;
  size_t past_word(size_t end) const;
  size_t past_number(size_t end) const;
  size_t past_suffix(size_t end) const;
  CppToken token(CppToken::Kind kind, size_t end, bool is_closed = true) const;
  CppToken quoted(size_t quote) const;
  CppToken raw_string(size_t quote) const;
  CppToken line_comment() const;
  CppToken block_comment(size_t star) const;
  CppToken read() const;

  std::string_view text_;
  size_t at_;
  size_t line_begin_ = 0;
  bool in_directive_ = false;
  bool line_is_blank_ = true;  // so far, apart from comments
  enum class Header { no, name_of_directive, expected } header_ = Header::no;  // what comes next in a directive
};

/// Whether `word` is one of `words`.
bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words);

/// Whether there is anything to compile in `text`: a token, or a comment that is never closed, which the compiler
/// reports.
bool has_code(std::string_view text);

}  // namespace lockstep::shell
