#include "protocol/utf8.h"

#include <algorithm>

namespace lockstep {
namespace {

bool is_character(char32_t code) { return code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF); }

/// Decodes as first_character does, but returns zero bytes where `text` does not begin with well-formed UTF-8.
Character decode(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  if (byte(0) < 0x80) return {byte(0), 1};
  const size_t length = character_length(text[0]);
  if (length == 1 || text.size() < length) return {};
  char32_t code = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation_byte(text[i])) return {};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || !is_character(code)) return {};
  return {code, length};
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode(text.substr(at));
    if (character.bytes == 0) return at;
    at += character.bytes;
  }
  return std::nullopt;
}

Character first_character(std::string_view text) {
  const Character character = decode(text);
  return character.bytes ? character : Character{0xFFFD, 1};
}

size_t character_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0xC2 || byte > 0xF4) return 1;
  return byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
}

size_t unfinished_utf8(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back)
    if (const char c = text[text.size() - back]; !is_continuation_byte(c)) return character_length(c) > back ? back : 0;
  return 0;
}

void append_utf8(std::string& text, char32_t code) {
  if (!is_character(code)) code = 0xFFFD;
  const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  constexpr char32_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(kLead[length] | (code >> (6 * (length - 1))));
  for (size_t left = length - 1; left-- > 0;) text += static_cast<char>(0x80 | ((code >> (6 * left)) & 0x3F));
}

}  // namespace lockstep
