// Text as a terminal shows it, and how many columns it takes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "protocol/text.h"
#include "protocol/utf8.h"

namespace lockstep::shell {

/// Whether `c` can stand in a name of C++: a letter, a digit or `_`.
bool is_name_character(char c);

/// Whether `text` is a name of C++, and nothing else.
bool is_name(std::string_view text);

/// Returns the last part of a qualified name of C++: "f" of "a::b::f".
std::string last_part(const std::string& name);

/// Whether `text` has the name `word`, not only as a part of a longer one.
bool has_word(std::string_view text, std::string_view word);

/// Returns the columns that a character takes by the C library's tables: 0 for combining ones and control characters, 2 for wide
/// ones (CJK, emoji), otherwise 1.
int character_width(char32_t code);

/// Returns the length of the terminal's escape sequence at the front of `text` (CSI, OSC or two bytes); 0 where there
/// is none. One that is cut off at the end counts as far as it goes.
size_t escape_length(std::string_view text);

/// Makes text that comes from a file or a program and is not its output safe for a terminal, which obeys control
/// characters: those of ASCII become `^[`, those beyond (C1) and bytes that are no UTF-8 become U+FFFD. Line ends and
/// tabs stay; `keeps_colours`: the sequences for colours and bold type as well.
std::string without_controls(std::string_view text, bool keeps_colours = false);

/// Returns the columns of one line of text. Escape sequences take none; a tab goes to the next multiple of 8.
int text_width(std::string_view text);

/// Returns the beginning of one line of text that takes at most `columns`; escape sequences are kept whole.
std::string_view fitting(std::string_view text, int columns);

/// Convert between UTF-8 and wide characters. Bytes that are no UTF-8 become U+FFFD.
std::wstring to_wide(std::string_view text);
std::string to_utf8(std::wstring_view text);

/// Breaks text at blanks into lines of at most `columns` (0: only where it has line ends). Words that are longer stay
/// whole; the leading blanks of a line are kept on its continuations.
std::vector<std::string> wrapped(std::string_view text, int columns);

/// Returns the lines with each line, or up to four in a row, that comes three times or more on end, as in stacks of a
/// recursion, once; behind it `dots` and how often it comes.
std::vector<std::string> without_repeats(const std::vector<std::string>& lines, std::string_view dots);

/// Returns the lines of text, without their ends; a last line end begins no further line.
std::vector<std::string_view> lines_of(std::string_view text);

/// Returns the first line that has more than blanks; an empty text where none has.
std::string first_line(std::string_view text);

/// Returns `text` with blanks behind it, up to so many columns.
std::string padded(std::string text, int columns);

using protocol::trimmed;

/// Returns where `part` begins, which is a piece of `text`.
inline size_t offset_of(std::string_view part, std::string_view text) {
  return static_cast<size_t>(part.data() - text.data());
}

}  // namespace lockstep::shell
