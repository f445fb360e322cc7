#include "shell/scripts/cpp_lexer.h"

#include <algorithm>
#include <cctype>

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\f' || c == '\v'; }
bool is_line_end(char c) { return c == '\n' || c == '\r'; }
bool is_word_byte(char c) { return is_name_character(c) || c == '$' || static_cast<unsigned char>(c) >= 0x80; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Past the backslash at `i`, the blanks behind it and the line end; `i` where it joins no lines.
size_t past_splice(std::string_view text, size_t i) {
  size_t end = i + 1;
  while (end < text.size() && is_blank(text[end])) ++end;
  if (end == text.size() || !is_line_end(text[end])) return i;
  const bool is_pair = end + 1 < text.size() && is_line_end(text[end + 1]) && text[end + 1] != text[end];
  return is_pair ? end + 2 : end + 1;
}

}  // namespace

std::string CppToken::spelling() const {
  std::string spelled;
  for (size_t i = 0; i < text.size();) {
    const size_t after = text[i] == '\\' ? past_splice(text, i) : i;
    if (after == i)
      spelled += text[i++];
    else
      i = after;
  }
  return spelled;
}

size_t CppLexer::past_splices(size_t i) const {
  while (i < text_.size() && text_[i] == '\\') {
    const size_t after = past_splice(text_, i);
    if (after == i) break;
    i = after;
  }
  return i;
}

size_t CppLexer::past_word(size_t end) const {
  for (size_t i = past_splices(end); i < text_.size() && is_word_byte(text_[i]); i = past_splices(end)) end = i + 1;
  return end;
}

/// Past a number of the preprocessor, of which a digit comes before `end`: 1'000, 0x1p-3, 1.5e+7f, 12_km.
size_t CppLexer::past_number(size_t end) const {
  for (char last = text_[end - 1];;) {
    size_t i = past_splices(end);
    const bool is_separated = i < text_.size() && text_[i] == '\'';
    if (is_separated) i = past_splices(i + 1);
    if (i == text_.size()) return end;
    const char c = text_[i];
    const bool is_sign = (c == '+' || c == '-') && std::string_view("eEpP").find(last) != std::string_view::npos;
    if (!is_word_byte(c) && (is_separated || (c != '.' && !is_sign))) return end;
    last = is_separated ? '\0' : c;  // 0x1'e+1 is a sum for clang
    end = i + 1;
  }
}

/// Past the suffix of the literal whose quote ends at `end`: _km, or s and sv of a string. Other names are words.
size_t CppLexer::past_suffix(size_t end) const {
  const size_t begin = past_splices(end), after = past_word(end);
  if (after == end) return end;
  const bool is_standard = text_[end - 1] == '"' && is_any_of(text_.substr(begin, after - begin), {"s", "sv"});
  return text_[begin] == '_' || is_standard ? after : end;
}

CppToken CppLexer::token(CppToken::Kind kind, size_t end, bool is_closed) const {
  return {kind, text_.substr(at_, end - at_), at_, is_closed, in_directive_};
}

CppToken CppLexer::quoted(size_t quote) const {
  const CppToken::Kind kind = text_[quote] == '"' ? CppToken::string : CppToken::character;
  for (size_t i = quote + 1;;) {
    i = past_splices(i);
    if (i == text_.size() || is_line_end(text_[i])) return token(kind, i, /*is_closed=*/false);
    if (text_[i] == text_[quote]) return token(kind, past_suffix(i + 1));
    if (text_[i] == '\\') i = past_splices(i + 1);
    if (i < text_.size() && !is_line_end(text_[i])) ++i;
  }
}

/// R"delimiter(...)delimiter". A delimiter that is none ends with the next quote, as for clang.
CppToken CppLexer::raw_string(size_t quote) const {
  constexpr size_t kLongestDelimiter = 16;
  const std::string_view head = text_.substr(quote + 1, kLongestDelimiter + 1);
  const size_t length = std::min(head.find_first_of(" ()\\\t\v\f\r\n"), head.size());
  const bool is_delimiter = length < head.size() && head[length] == '(';
  const std::string close = is_delimiter ? ")" + std::string(head.substr(0, length)) + "\"" : "\"";
  const size_t end = text_.find(close, quote + 1 + (is_delimiter ? length : 0));
  if (end == std::string_view::npos) return token(CppToken::raw_string, text_.size(), /*is_closed=*/false);
  return token(CppToken::raw_string, past_suffix(end + close.size()));
}

CppToken CppLexer::line_comment() const {
  size_t end = at_;
  while (end < text_.size() && !is_line_end(text_[end])) {
    const size_t after = past_splices(end);
    end = after == end ? end + 1 : after;
  }
  return token(CppToken::comment, end);
}

CppToken CppLexer::block_comment(size_t star) const {
  for (size_t i = text_.find('*', star + 1); i != std::string_view::npos; i = text_.find('*', i + 1)) {
    const size_t slash = past_splices(i + 1);
    if (slash < text_.size() && text_[slash] == '/') return token(CppToken::comment, slash + 1);
  }
  return token(CppToken::comment, text_.size(), /*is_closed=*/false);
}

CppToken CppLexer::read() const {
  const char c = text_[at_];
  const size_t second = past_splices(at_ + 1);
  const char next = second < text_.size() ? text_[second] : '\0';
  if (c == '/' && next == '/') return line_comment();
  if (c == '/' && next == '*') return block_comment(second);
  if (header_ == Header::expected && c == '<') {
    const size_t end = text_.find_first_of(">\r\n", at_);
    if (end < text_.size() && text_[end] == '>') return token(CppToken::string, end + 1);
  }
  if (is_digit(c)) return token(CppToken::number, past_number(at_ + 1));
  if (c == '.' && is_digit(next)) return token(CppToken::number, past_number(second + 1));
  if (c == '"' || c == '\'') return quoted(at_);
  if (is_word_byte(c)) {
    const CppToken word = token(CppToken::word, past_word(at_ + 1));
    const size_t quote = past_splices(word.end());
    if (quote == text_.size() || (text_[quote] != '"' && text_[quote] != '\'')) return word;
    const std::string prefix = word.spelling();
    if (is_any_of(prefix, {"L", "u", "U", "u8"})) return quoted(quote);
    if (text_[quote] == '"' && is_any_of(prefix, {"R", "LR", "uR", "UR", "u8R"})) return raw_string(quote);
    return word;
  }
  if (c == '.' && next == '.') {
    const size_t third = past_splices(second + 1);
    if (third < text_.size() && text_[third] == '.') return token(CppToken::punctuation, third + 1);
  }
  const bool is_pair = (c == ':' && next == ':') || (c == '-' && next == '>');
  return token(CppToken::punctuation, is_pair ? second + 1 : at_ + 1);
}

std::optional<CppToken> CppLexer::next(size_t limit) {
  for (;;) {
    at_ = past_splices(at_);
    if (at_ >= std::min(limit, text_.size())) return std::nullopt;
    const char c = text_[at_];
    if (is_line_end(c)) {
      line_begin_ = ++at_;
      in_directive_ = false;
      line_is_blank_ = true;
      header_ = Header::no;
    } else if (is_blank(c) || c == '\0') {
      ++at_;
    } else {
      break;
    }
  }
  const bool is_hash = text_[at_] == '#' && line_is_blank_;
  in_directive_ |= is_hash;
  const CppToken found = is_hash ? token(CppToken::hash, at_ + 1) : read();
  at_ = found.end();
  if (found.kind == CppToken::comment) return found;
  if (is_hash)
    header_ = Header::name_of_directive;
  else if (header_ == Header::name_of_directive && is_any_of(found.spelling(), {"include", "include_next", "import"}))
    header_ = Header::expected;
  else
    header_ = Header::no;
  line_is_blank_ = false;
  return found;
}

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool has_code(std::string_view text) {
  CppLexer lexer(text);
  while (const auto token = lexer.next())
    if (token->kind != CppToken::comment || !token->is_closed) return true;
  return false;
}

}  // namespace lockstep::shell
