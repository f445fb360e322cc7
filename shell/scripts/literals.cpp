#include "shell/scripts/literals.h"

#include "shell/scripts/cpp_lexer.h"
#include "shell/text/text.h"

namespace lockstep::shell {

std::optional<Literal> literal_at(std::string_view text, size_t i) {
  if (text[i] != '"' && text[i] != '\'') return std::nullopt;
  size_t begin = i;
  while (begin > 0 && is_name_character(text[begin - 1])) --begin;
  CppToken token = *CppLexer(text, begin).next();
  if (token.kind == CppToken::number && token.end() > i) return std::nullopt;
  if (token.end() <= i) {  // a word or a number before the quote, which is no prefix of it
    if (text[i] == '\'' && !is_any_of(token.text, {"case", "return", "co_return", "co_yield", "co_await", "throw",
                                                   "else", "and", "or", "not"}))
      return std::nullopt;
    token = *CppLexer(text, i).next();
  }
  return Literal{token.end(), token.is_closed};
}

}  // namespace lockstep::shell
