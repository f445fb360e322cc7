// How ranks find each other: each puts what the others need to know into the store and reads theirs.
#pragma once
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/dist.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// Where rank `rank` writes its part under `key`.
std::string rank_key(const std::string& key, int rank);

/// Writes `mine` as rank `rank`'s and returns everyone's, by rank. Collective over `ranks`. `key` must be fresh. Throws Error
/// naming the ranks that did not come within `timeout`.
std::map<int, nlohmann::json> exchange(const Store& store, const std::string& key, int rank, const RankSet& ranks,
                                       const nlohmann::json& mine, std::chrono::milliseconds timeout);

}  // namespace lockstep::dist
