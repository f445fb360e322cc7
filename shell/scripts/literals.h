// String and character literals in C++ text, as far as the shell reads it: cells, magics and what is being typed.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::shell {

struct Literal {
  size_t end = 0;  // past its closing quote; the end of the text where it has none
  bool is_closed = false;
};

/// The literal whose opening quote is at `i`; nothing where none begins there: 1'000 has a separator, and don't an
/// apostrophe. Raw strings are read like others.
std::optional<Literal> literal_at(std::string_view text, size_t i);

/// Whether a backslash at the end of `line`, which has no line end, makes the next line a part of it. As for clang,
/// blanks may follow it.
bool is_continued(std::string_view line);
/// The end of the line of `text` in which `i` is, and of those that backslashes add to it.
size_t end_of_line(std::string_view text, size_t i);

}  // namespace lockstep::shell
