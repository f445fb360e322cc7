#include "collectives/rendezvous.h"

#include <fmt/format.h>

#include "protocol/checksum.h"

namespace lockstep::dist {

std::string rank_key(const std::string& key, int rank) { return fmt::format("{}/rank-{}", key, rank); }

std::map<int, nlohmann::json> exchange(const Store& store, const std::string& key, int rank, const RankSet& ranks,
                                       const nlohmann::json& mine, std::chrono::milliseconds timeout) {
  store->set(rank_key(key, rank), mine.dump());

  std::vector<std::string> keys;
  for (int each : ranks) keys.push_back(rank_key(key, each));
  try {
    store->wait(keys, timeout);
  } catch (const std::exception& error) {
    RankSet missing;
    for (int each : ranks) {
      try {
        if (!store->check({rank_key(key, each)})) missing.insert(each);
      } catch (const std::exception&) {  // the store itself is gone: that is the error to show
        throw Error(fmt::format("the store is gone: {}", error.what()));
      }
    }
    if (missing.empty()) throw;
    throw Error(
        fmt::format("{} did not come within {} s (this is rank {})", missing.words(), timeout.count() / 1000.0, rank));
  }

  std::map<int, nlohmann::json> everyone;
  if (store->hasExtendedApi()) {
    const auto values = store->multiGet(keys);
    for (size_t i = 0; i < keys.size(); ++i) everyone[ranks.ranks()[i]] = nlohmann::json::parse(values[i]);
  } else {
    for (int each : ranks) everyone[each] = nlohmann::json::parse(store->get(rank_key(key, each)));
  }
  return everyone;
}

uint64_t incarnation_of(const std::string& name, const std::vector<int>& ranks,
                        const std::map<int, nlohmann::json>& announcements) {
  uint64_t hash = protocol::fnv1a(name);
  for (const int rank : ranks) {
    const nlohmann::json& theirs = announcements.at(rank);
    hash = protocol::fnv1a(
        fmt::format(" {}:{}:{}", rank, theirs.at("pid").get<int64_t>(), theirs.at("made").get<int64_t>()), hash);
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace lockstep::dist
