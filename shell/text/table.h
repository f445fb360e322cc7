// Rows of words as columns that line up, for what magics and commands print.
#pragma once
#include <string>
#include <vector>

namespace lockstep::shell {

/// Each row on a line of its own, two blanks between columns, `indent` blanks before the first. The last column is not
/// padded.
std::string table(const std::vector<std::vector<std::string>>& rows, int indent = 0);

}  // namespace lockstep::shell
