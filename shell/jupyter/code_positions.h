// Converts positions in code between Jupyter's (characters, code points of Unicode) and C++ tools' (bytes of UTF-8).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::shell::jupyter {

/// Returns the byte at which character `position` begins, or the end where there are fewer. Negative: from the end.
int64_t byte_of(std::string_view text, int64_t position);
/// Returns how many characters begin before `byte`.
int64_t character_of(std::string_view text, int64_t byte);

}  // namespace lockstep::shell::jupyter
