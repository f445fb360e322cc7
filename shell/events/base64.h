// Base64 (RFC 4648) of bytes that are not UTF-8, and whether they are.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::shell {

std::string base64(std::string_view bytes);
/// The bytes that `text` stands for. Throws std::invalid_argument for text that is no base64.
std::string from_base64(std::string_view text);

/// Well-formed UTF-8: no overlong forms, no surrogates, nothing cut short.
bool is_utf8(std::string_view bytes);

/// How many bytes at the end of `bytes` are a character that has begun and may go on in what follows: 0 to 3.
size_t unfinished_utf8(std::string_view bytes);

}  // namespace lockstep::shell
