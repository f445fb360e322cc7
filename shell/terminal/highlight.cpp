#include "shell/terminal/highlight.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "shell/scripts/code_scanner.h"
#include "shell/scripts/literals.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr auto kKeywords = std::to_array<std::string_view>(
    {"alignas",    "alignof",   "asm",       "break",        "case",          "catch",
     "class",      "co_await",  "co_return", "co_yield",     "concept",       "const",
     "const_cast", "consteval", "constexpr", "constinit",    "continue",      "decltype",
     "default",    "delete",    "do",        "dynamic_cast", "else",          "enum",
     "explicit",   "export",    "extern",    "false",        "final",         "for",
     "friend",     "goto",      "if",        "import",       "inline",        "module",
     "mutable",    "namespace", "new",       "noexcept",     "nullptr",       "operator",
     "override",   "private",   "protected", "public",       "register",      "reinterpret_cast",
     "requires",   "return",    "sizeof",    "static",       "static_assert", "static_cast",
     "struct",     "switch",    "template",  "this",         "thread_local",  "throw",
     "true",       "try",       "typedef",   "typeid",       "typename",      "union",
     "using",      "virtual",   "volatile",  "while",        "and",           "or",
     "not",        "xor"});
constexpr auto kTypes = std::to_array<std::string_view>(
    {"auto",   "bool",     "char",     "char16_t", "char32_t", "char8_t",  "double", "float",
     "int",    "int16_t",  "int32_t",  "int64_t",  "int8_t",   "long",     "short",  "signed",
     "size_t", "uint16_t", "uint32_t", "uint64_t", "uint8_t",  "unsigned", "void",   "wchar_t"});

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    CodeScanner scanner;
    while (at_ < text_.size()) {
      const size_t line_begin = at_;
      const size_t line_end = std::min(text_.find('\n', at_), text_.size());
      const size_t first = text_.find_first_not_of(" \t", line_begin);
      const bool may_begin = scanner.at_statement();
      const char c = first < line_end ? text_[first] : '\0';
      if (may_begin && (c == '%' || c == '!' || c == '?') && is_magic(first, line_end)) {
        magic(first, line_end);
        scanner.end_statement();
        at_ = line_end + 1;
        continue;
      }
      const size_t before = at_;
      if (c == '#' && may_begin) {
        directive(first, line_end);
      }
      while (at_ <= line_end && at_ < text_.size()) {
        if (text_[at_] == '\n') {
          ++at_;
          break;
        }
        token();
      }
      // A token may go on over lines: a raw string, a comment.
      std::string_view taken = text_.substr(before, at_ - before);
      while (!taken.empty()) {
        const size_t end = taken.find('\n');
        scanner.take(taken.substr(0, end));
        if (end == std::string_view::npos) break;
        taken.remove_prefix(end + 1);
      }
    }
    return std::move(tokens_);
  }

 private:
  void add(size_t begin, size_t end, Style style) { tokens_.push_back({begin, end, style}); }

  bool is_magic(size_t first, size_t line_end) const {
    const size_t name = text_.find_first_not_of('%', first);
    if (text_[first] == '!') return first + 1 < line_end && std::isalpha(static_cast<unsigned char>(text_[first + 1]));
    return text_[first] == '?' || name >= line_end || std::isalpha(static_cast<unsigned char>(text_[name]));
  }

  /// The name in one colour, its options in another, and C++ after that.
  void magic(size_t first, size_t line_end) {
    size_t end = first;
    while (end < line_end && !std::isspace(static_cast<unsigned char>(text_[end])) && text_[end] != '[') ++end;
    add(first, end, Style::magic);
    at_ = end;
    while (at_ < line_end) {
      if (text_[at_] == '-' && std::isspace(static_cast<unsigned char>(text_[at_ - 1]))) {
        size_t stop = at_;
        while (stop < line_end && !std::isspace(static_cast<unsigned char>(text_[stop])) && text_[stop] != '=') ++stop;
        add(at_, stop, Style::type_name);
        at_ = stop;
      } else {
        token();
      }
    }
  }

  void directive(size_t first, size_t line_end) {
    size_t end = first + 1;
    while (end < line_end && text_[end] == ' ') ++end;
    while (end < line_end && is_name_character(text_[end])) ++end;
    add(first, end, Style::directive);
    const bool is_include = text_.substr(first, end - first).ends_with("include");
    at_ = end;
    if (!is_include) return;
    const size_t open = text_.find('<', end);
    if (open >= line_end) return;
    const size_t close = text_.find('>', open);
    if (close >= line_end) return;
    add(open, close + 1, Style::string);
    at_ = close + 1;
  }

  void token() {
    const char c = text_[at_];
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("//")) {
      const size_t end = end_of_line(text_, at_);
      add(at_, end, Style::comment);
      at_ = end;
    } else if (rest.starts_with("/*")) {
      const size_t close = text_.find("*/", at_ + 2);
      const size_t end = close == std::string_view::npos ? text_.size() : close + 2;
      add(at_, end, Style::comment);
      at_ = end;
    } else if (c == '"' || c == '\'') {
      quoted(at_, at_);
    } else if (std::isdigit(static_cast<unsigned char>(c)) ||
               (c == '.' && rest.size() > 1 && std::isdigit(static_cast<unsigned char>(rest[1])))) {
      const size_t begin = at_;
      while (at_ < text_.size() &&
             (is_name_character(text_[at_]) || text_[at_] == '.' ||
              (text_[at_] == '\'' && at_ + 1 < text_.size() && is_name_character(text_[at_ + 1])) ||
              ((text_[at_] == '+' || text_[at_] == '-') && std::tolower(text_[at_ - 1]) == 'e' &&
               text_.substr(begin, 2) != "0x")))
        ++at_;
      add(begin, at_, Style::number);
    } else if (is_name_character(c)) {
      const size_t begin = at_;
      while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
      const std::string_view word = text_.substr(begin, at_ - begin);
      if (at_ < text_.size() && text_[at_] == '"' &&
          (word == "R" || word == "LR" || word == "u8R" || word == "uR" || word == "UR"))
        return raw_string(begin);
      if (at_ < text_.size() && text_[at_] == '"' && (word == "L" || word == "u8" || word == "u" || word == "U"))
        return quoted(begin, at_);
      if (std::find(kKeywords.begin(), kKeywords.end(), word) != kKeywords.end())
        add(begin, at_, Style::keyword);
      else if (std::find(kTypes.begin(), kTypes.end(), word) != kTypes.end())
        add(begin, at_, Style::type_name);
    } else {
      at_ += first_character(rest).bytes;
    }
  }

  void quoted(size_t begin, size_t quote) {
    at_ = quote + 1;
    while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != text_[quote]) at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    if (at_ < text_.size() && text_[at_] == text_[quote]) ++at_;
    add(begin, at_, Style::string);
  }

  void raw_string(size_t begin) {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) {
      at_ = text_.size();
    } else {
      const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
      const size_t end = text_.find(close, open);
      at_ = end == std::string_view::npos ? text_.size() : end + close.size();
    }
    add(begin, at_, Style::string);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

bool is_code(const std::vector<Token>& tokens, size_t at) {
  const auto after = std::upper_bound(tokens.begin(), tokens.end(), at,
                                      [](size_t offset, const Token& token) { return offset < token.begin; });
  if (after == tokens.begin()) return true;
  const Token& token = *(after - 1);
  return at >= token.end || (token.style != Style::string && token.style != Style::comment);
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) { return Lexer(text).run(); }

std::optional<std::pair<size_t, size_t>> matching_brackets(std::string_view text, const std::vector<Token>& tokens,
                                                           size_t cursor) {
  constexpr std::string_view kOpen = "([{", kClose = ")]}";
  const auto is_bracket = [&](size_t at) {
    return at < text.size() && (kOpen.find(text[at]) != kOpen.npos || kClose.find(text[at]) != kClose.npos) &&
           is_code(tokens, at);
  };
  size_t at = cursor;
  if (!is_bracket(at)) {
    if (cursor == 0 || !is_bracket(cursor - 1)) return std::nullopt;
    at = cursor - 1;
  }
  const bool opens = kOpen.find(text[at]) != kOpen.npos;
  std::string expected;
  for (size_t k = at;;) {
    if (is_bracket(k)) {
      const size_t open = kOpen.find(text[k]), close = kClose.find(text[k]);
      const bool nests = opens ? open != kOpen.npos : close != kClose.npos;
      if (nests) {
        expected += opens ? kClose[open] : kOpen[close];
      } else {
        if (expected.back() != text[k]) return std::nullopt;
        expected.pop_back();
        if (expected.empty()) return std::pair(std::min(at, k), std::max(at, k));
      }
    }
    if (opens ? k + 1 == text.size() : k == 0) return std::nullopt;
    k += opens ? 1 : size_t(-1);
  }
}

std::optional<size_t> open_call(std::string_view text, const std::vector<Token>& tokens, size_t cursor) {
  int depth = 0;
  for (size_t at = std::min(cursor, text.size()); at > 0; --at) {
    const char c = text[at - 1];
    if (std::string_view("()[]{};").find(c) == std::string_view::npos || !is_code(tokens, at - 1)) continue;
    if (c == ')' || c == ']' || c == '}') {
      ++depth;
    } else if (c == ';') {
      if (depth == 0) return std::nullopt;
    } else if (depth > 0) {
      --depth;
    } else {
      return c == '(' ? std::optional(at - 1) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::shell
