#include "shell/scripts/cpp_tokens.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "shell/scripts/literals.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

size_t past_literal(std::string_view text, size_t i) {
  const char quote = text[i];
  for (++i; i < text.size() && text[i] != quote && text[i] != '\n'; ++i)
    if (text[i] == '\\') ++i;
  return std::min(i + 1, text.size());
}

}  // namespace

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<CppToken> cpp_tokens_of(std::string_view text, std::vector<size_t>& includes) {
  std::vector<CppToken> tokens;
  bool line_start = true;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto add = [&](size_t end, bool is_word = false) {
      tokens.push_back({text.substr(i, end - i), i, is_word});
      i = end;
      line_start = false;
    };
    if (c == '\n') {
      line_start = true;
      ++i;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (c == '#' && line_start) {
      if (text.substr(std::min(text.find_first_not_of(" \t", i + 1), text.size())).starts_with("include"))
        includes.push_back(i);
      i = end_of_line(text, i);
    } else if (text.substr(i, 2) == "//") {
      i = end_of_line(text, i);
    } else if (text.substr(i, 2) == "/*") {
      const size_t end = text.find("*/", i + 2);
      i = end == std::string_view::npos ? text.size() : end + 2;
    } else if (is_name_character(c) && !std::isdigit(static_cast<unsigned char>(c))) {
      size_t end = i;
      while (end < text.size() && is_name_character(text[end])) ++end;
      const std::string_view word = text.substr(i, end - i);
      if (end < text.size() && text[end] == '"' && word.ends_with('R') && word.size() <= 3) {
        const size_t open = text.find('(', end);
        if (open == std::string_view::npos) return tokens;
        const size_t close = text.find(")" + std::string(text.substr(end + 1, open - end - 1)) + "\"", open);
        add(close == std::string_view::npos ? text.size() : close + (open - end) + 1);
      } else {
        add(end, true);
      }
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      size_t end = i;
      while (end < text.size() && (is_name_character(text[end]) || text[end] == '.' ||
                                   (text[end] == '\'' && end + 1 < text.size() && is_name_character(text[end + 1]))))
        ++end;
      add(end);
    } else if (c == '"' || c == '\'') {
      add(past_literal(text, i));
    } else {
      const bool two = text.substr(i, 2) == "::" || text.substr(i, 2) == "->";
      add(i + (two ? 2 : 1));
    }
  }
  return tokens;
}

}  // namespace lockstep::shell
