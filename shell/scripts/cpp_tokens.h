// The tokens of C++ text, for what looks at the text of cells without a compiler. Lexical: text that does not compile has
// tokens, too.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace lockstep::shell {

struct CppToken {
  std::string_view text;
  size_t begin = 0;
  bool is_word = false;
  size_t end() const { return begin + text.size(); }
};

/// Whether `word` is one of `words`.
bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words);

/// Words, literals and punctuation, as views of `text`. #include lines are put into `includes` (offset of the line),
/// other directives are left out.
std::vector<CppToken> cpp_tokens_of(std::string_view text, std::vector<size_t>& includes);

}  // namespace lockstep::shell
