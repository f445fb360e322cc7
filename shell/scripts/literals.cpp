#include "shell/scripts/literals.h"

#include <algorithm>
#include <array>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

bool is_encoding_prefix(std::string_view word) {
  return word.empty() || word == "L" || word == "u" || word == "U" || word == "u8";
}

/// After other words, and after digits, ' is no quote: it separates digits.
bool can_precede_character(std::string_view word) {
  static constexpr std::array<std::string_view, 10> kKeywords = {"case",  "return", "co_return", "co_yield", "co_await",
                                                                 "throw", "else",   "and",       "or",       "not"};
  return is_encoding_prefix(word) || std::ranges::find(kKeywords, word) != kKeywords.end();
}

}  // namespace

std::optional<Literal> literal_at(std::string_view text, size_t i) {
  const char quote = text[i];
  if (quote != '"' && quote != '\'') return std::nullopt;
  if (quote == '\'') {
    size_t begin = i;
    while (begin > 0 && is_name_character(text[begin - 1])) --begin;
    if (!can_precede_character(text.substr(begin, i - begin))) return std::nullopt;
  }
  size_t end = i + 1;
  while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  return end < text.size() ? Literal{end + 1, true} : Literal{text.size(), false};
}

bool is_continued(std::string_view line) {
  const size_t last = line.find_last_not_of(" \t\r\f\v");
  return last != std::string_view::npos && line[last] == '\\';
}

size_t end_of_line(std::string_view text, size_t i) {
  while (true) {
    const size_t end = std::min(text.find('\n', i), text.size());
    if (end == text.size() || !is_continued(text.substr(i, end - i))) return end;
    i = end + 1;
  }
}

}  // namespace lockstep::shell
