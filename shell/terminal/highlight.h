// Finds the tokens of a cell that is being typed, for colours: lexical alone, so that it is done in the time between
// two keys and text that does not compile has colours, too. It also finds the brackets that belong together.
#pragma once
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "shell/text/screen.h"

namespace lockstep::shell {

struct Token {
  size_t begin = 0, end = 0;  // bytes
  Style style = Style::plain;
};

/// Returns them in order, without the pieces that have no colour.
std::vector<Token> tokens_of(std::string_view text);

/// Returns the bracket at the cursor, or else before it, and the one that matches it: offsets, the opening one first.
/// Brackets in strings and comments do not count. Nothing where there is none, or no match.
std::optional<std::pair<size_t, size_t>> matching_brackets(std::string_view text, const std::vector<Token>& tokens,
                                                           size_t cursor);

}  // namespace lockstep::shell
