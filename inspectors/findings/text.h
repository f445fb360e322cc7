// Makes words and tables that the inspectors' messages share. For ranks there is RankSet::words().
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// Returns "1 sample", "2 samples".
std::string counted(int64_t count, const std::string& noun);
/// Returns "1.5 MB".
std::string bytes_text(double bytes);
/// Returns "12.3 ms".
std::string time_text(double seconds);
/// Returns "12%" for a share from 0 to 1.
std::string percent_text(double share);
/// Returns "12% more than the median" or "95 times the median" for a number that is `share` above the median.
std::string above_median_text(double share);
/// Returns a table whose first row is the header. Columns of numbers are aligned to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

/// " (cell 7, line 4)"; empty for an empty text.
inline std::string in_brackets(const std::string& text) { return text.empty() ? "" : " (" + text + ")"; }

/// The fix if ranks disagree on the next call.
inline constexpr const char* kOneOrder =
    "All ranks of a group must make the same calls in the same order; where ranks use several groups, in one order "
    "over all of them";

}  // namespace lockstep::inspect
