// Makes one value of numbers that differ between ranks: show::options({.ranks = "range"}).
#pragma once
#include <map>
#include <nlohmann/json.hpp>

#include "shell/events/event.h"

namespace lockstep::shell {

/// Returns `1.21 to 1.34 (spread 0.13, mean 1.27, lowest rank 3, highest rank 5)`. `values` has a number of each rank,
/// at least one. Its data: `values` by rank, `min`, `max`, `spread`, `mean`, `lowest` and `highest` (rank sets).
ValueEvent range_of_values(int64_t cell, const std::map<int, nlohmann::json>& values);

}  // namespace lockstep::shell
