// Finds the name that was probably meant ("Did you mean"), for unknown magics, options, commands, tags and files.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::shell {

/// Returns the edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`, ignoring case.
size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate nearest to `name`, if one is near enough to be a slip of it: a third of its letters, or one is
/// the other's beginning.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

/// Returns "; did you mean `PREFIXcandidate`?", or nothing where no candidate is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         std::string_view prefix = "");

}  // namespace lockstep::shell
