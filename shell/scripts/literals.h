// String and character literals in the arguments of magics, which are C++ or words.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::shell {

struct Literal {
  size_t end = 0;  // past its closing quote; the end of the line where it has none
  bool is_closed = false;
};

/// Returns the literal whose opening quote is at `i`; nothing where none begins there: 1'000 has a separator, and don't an
/// apostrophe.
std::optional<Literal> literal_at(std::string_view text, size_t i);

}  // namespace lockstep::shell
