// Folds answers of lessons: `<details><summary>Answer</summary> ... </details>` in markdown cells, as notebooks do.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::shell {

/// Returns the text with each answer folded to its summary: "▸ Answer (hidden: --answers shows it)". `sign` stands
/// before it. A <details> that is never closed is folded to the end. Text without <details> is unchanged.
std::string with_folded_details(std::string_view text, std::string_view sign);

/// Returns the text with each answer below its summary, without the tags.
std::string with_open_details(std::string_view text, std::string_view sign);

}  // namespace lockstep::shell
