// Positions in code as Jupyter counts them (characters, code points of Unicode) and as C++ tools do (bytes of UTF-8).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::shell::jupyter {

/// The byte at which character `position` of `text` begins; its end where there are fewer. Negative: from the end.
int64_t byte_of(std::string_view text, int64_t position);
/// How many characters begin before `byte`.
int64_t character_of(std::string_view text, int64_t byte);

}  // namespace lockstep::shell::jupyter
