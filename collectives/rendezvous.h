// Ranks exchange here what they need to know of each other: each writes its part into the store and reads those of the
// others.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/dist.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// Returns the key where rank `rank` writes its part under `key`.
std::string rank_key(const std::string& key, int rank);

/// Writes `mine` as rank `rank`'s and returns everyone's, by rank. Collective over `ranks`. `key` must be fresh. Throws
/// Error naming the ranks that did not come within `timeout`.
std::map<int, nlohmann::json> exchange(const Store& store, const std::string& key, int rank, const RankSet& ranks,
                                       const nlohmann::json& mine, std::chrono::milliseconds timeout);

/// Returns Group::incarnation of the group `name` of `ranks`, by what each has announced as "made", monotonic_ns(), and
/// as "pid".
uint64_t incarnation_of(const std::string& name, const std::vector<int>& ranks,
                        const std::map<int, nlohmann::json>& announcements);

}  // namespace lockstep::dist
