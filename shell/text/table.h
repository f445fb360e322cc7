// Lines rows of words up in columns, for what magics and commands print.
#pragma once
#include <string>
#include <vector>

namespace lockstep::shell {

/// Writes each row on a line of its own, two blanks between columns, `indent` blanks before the first. The last column
/// is not padded. Control characters of the words do not reach a terminal.
std::string table(std::vector<std::vector<std::string>> rows, int indent = 0);

}  // namespace lockstep::shell
