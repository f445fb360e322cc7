#include "shell/terminal/highlight.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "shell/scripts/code_scanner.h"
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

class Highlighter {
 public:
  explicit Highlighter(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    CodeScanner scanner(text_);
    for (const std::string_view line : lines_of(text_)) {
      const size_t begin = offset_of(line, text_), end = begin + line.size();
      const size_t first = std::min(text_.find_first_not_of(" \t", begin), end);
      if (is_magic(first, end) && scanner.may_begin(begin)) {
        magic(first, end);
        scanner.skip_magic(end);
      }
      while (const auto token = scanner.next(end)) code(*token);
    }
    return std::move(tokens_);
  }

 private:
  void add(size_t begin, size_t end, Style style) { tokens_.push_back({begin, end, style}); }

  bool is_magic(size_t first, size_t line_end) const {
    if (first == line_end) return false;
    const size_t name = text_.find_first_not_of('%', first);
    if (text_[first] == '!') return first + 1 < line_end && std::isalpha(static_cast<unsigned char>(text_[first + 1]));
    if (text_[first] == '?') return true;
    return text_[first] == '%' && (name >= line_end || std::isalpha(static_cast<unsigned char>(text_[name])));
  }

  /// Colours the name in one colour, its options in another, and C++ after that.
  void magic(size_t first, size_t line_end) {
    const size_t end = std::min(text_.find_first_of(" \t\r\v\f[", first), line_end);
    add(first, end, Style::magic);
    CppLexer lexer(text_.substr(0, line_end), end);
    while (const auto token = lexer.next()) {
      if (token->text == "-" && std::isspace(static_cast<unsigned char>(text_[token->begin - 1]))) {
        const size_t stop = std::min(text_.find_first_of(" \t\r\v\f=", token->begin), line_end);
        add(token->begin, stop, Style::type_name);
        lexer.seek(stop);
      } else {
        code(*token);
      }
    }
  }

  void code(const CppToken& token) {
    const bool names_directive = std::exchange(is_after_hash_, token.kind == CppToken::hash) && token.is_word();
    switch (token.kind) {
      case CppToken::hash:
        add(token.begin, token.end(), Style::directive);
        break;
      case CppToken::comment:
        add(token.begin, token.end(), Style::comment);
        break;
      case CppToken::number:
        add(token.begin, token.end(), Style::number);
        break;
      case CppToken::string:
      case CppToken::raw_string:
      case CppToken::character:
        add(token.begin, token.end(), Style::string);
        break;
      case CppToken::word:
        if (names_directive)
          tokens_.back().end = token.end();
        else if (const std::string word = token.spelling(); std::ranges::find(kKeywords, word) != kKeywords.end())
          add(token.begin, token.end(), Style::keyword);
        else if (std::ranges::find(kTypes, word) != kTypes.end())
          add(token.begin, token.end(), Style::type_name);
        break;
      case CppToken::punctuation:
        break;
    }
  }

  std::string_view text_;
  bool is_after_hash_ = false;
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

std::vector<Token> tokens_of(std::string_view text) { return Highlighter(text).run(); }

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

}  // namespace lockstep::shell
