// Words that the inspectors' messages share.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

inline std::string ranks_text(const RankSet& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + ranks.str(); }

inline std::string bytes_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  if (bytes < 1000000000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

/// "1 tensor", "3 tensors"
inline std::string count_text(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace lockstep::inspect
