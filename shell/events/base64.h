// Base64 (RFC 4648) of bytes that are not UTF-8.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::shell {

std::string base64(std::string_view bytes);
/// The bytes that `text` stands for. Throws std::invalid_argument for text that is no base64.
std::string from_base64(std::string_view text);

}  // namespace lockstep::shell
