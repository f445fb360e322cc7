// UTF-8, read and written.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Offset of the first byte that is not part of well-formed UTF-8; nothing where all of it is. Overlong forms,
/// surrogates and what is cut off are not well-formed.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// One character at the front of `text`: its code point and how many bytes it takes. Bytes that are no UTF-8 are
/// U+FFFD, one by one.
struct Character {
  char32_t code = 0;
  size_t bytes = 0;
};
Character first_character(std::string_view text);

/// Whether a character of UTF-8 goes on with `c`.
inline bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }
/// How many bytes a character has that begins with `lead`; 1 where none begins so.
size_t character_length(char lead);
/// How many bytes at the end of `text` are a character that has begun and may go on in what follows: 0 to 3.
size_t unfinished_utf8(std::string_view text);

/// U+FFFD for what is no character.
void append_utf8(std::string& text, char32_t code);

}  // namespace lockstep
