// Words and tables that the inspectors' messages share. What ranks are called: RankSet::words().
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// "1 sample", "2 samples".
std::string counted(int64_t count, const std::string& noun);
/// "1.5 MB".
std::string bytes_text(double bytes);
/// "12.3 ms".
std::string time_text(double seconds);
/// A table: the first row is its head; numbers are set to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep::inspect
