#include "collectives/start_claim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/log/process_identity.h"
#include "collectives/rendezvous.h"

namespace lockstep::dist {

using nlohmann::json;

namespace {
std::mutex instances_mutex;
uint64_t next_instance = 0;
std::set<uint64_t> instances;  // that live

uint64_t add_instance() {
  std::lock_guard lock(instances_mutex);
  instances.insert(next_instance);
  return next_instance++;
}

enum class Claimant { here, gone, elsewhere };

/// Finds who has made a claim: a rank that lives on this machine, one that is gone, or one that is not known here.
Claimant find(const json& claim) {
  if (claim.at("machine") != machine_identity()) return Claimant::elsewhere;
  const auto start = process_start_time(claim.at("pid").get<pid_t>());
  if (start != claim.at("start").get<uint64_t>()) return Claimant::gone;
  if (claim.at("pid") != getpid()) return Claimant::here;
  std::lock_guard lock(instances_mutex);
  return instances.contains(claim.at("instance").get<uint64_t>()) ? Claimant::here : Claimant::gone;
}

std::string claim_key(const std::string& key, int rank) { return fmt::format("{}/claim-{}", key, rank); }

/// Returns what the store holds afterwards.
std::string exchange_value(const Store& store, const std::string& key, const std::string& expected,
                           const std::string& desired) {
  const auto bytes = [](const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); };
  const std::vector<uint8_t> now = store->compareSet(key, bytes(expected), bytes(desired));
  return {now.begin(), now.end()};
}
}  // namespace

StartClaim::StartClaim(const Store& store, int rank, const RankSet& ranks)
    : rank_(rank),
      ranks_(ranks),
      instance_(add_instance()),
      mine_(json{{"machine", machine_identity()},
                 {"pid", getpid()},
                 {"start", process_start_time(getpid()).value_or(0)},
                 {"instance", instance_}}
                .dump()) {
  try {
    for (int number = 0; key_.empty(); ++number) {
      const std::string key = fmt::format("start-{}", number);
      std::string holder = exchange_value(store, claim_key(key, rank), "", mine_);
      while (holder != mine_) {
        const json claim = json::parse(holder);
        const Claimant claimant = find(claim);
        const bool over = has_all(store, key);
        const bool own = claim.at("pid") == getpid() && claim.at("machine") == machine_identity();
        if (over && (claimant != Claimant::here || own)) break;  // the next one
        if (claimant != Claimant::gone)
          throw Error(fmt::format(
              "two processes came as rank {}: this one, and process {}{}. Every rank needs a RANK of its own, from 0 "
              "to WORLD_SIZE - 1{}",
              rank, claim.at("pid").get<int>(), claimant == Claimant::here ? "" : " of another machine",
              claimant == Claimant::here ? "" : ". If that process has ended: start all ranks again on a new store"));
        const std::string before = holder;
        holder = exchange_value(store, claim_key(key, rank), before, mine_);
      }
      if (holder == mine_) key_ = key;
    }
  } catch (...) {  // the destructor does not run
    std::lock_guard lock(instances_mutex);
    instances.erase(instance_);
    throw;
  }
}

StartClaim::~StartClaim() {
  std::lock_guard lock(instances_mutex);
  instances.erase(instance_);
}

bool StartClaim::has_all(const Store& store, const std::string& key) const {
  std::vector<std::string> keys;
  for (int rank : ranks_) keys.push_back(rank_key(key, rank));
  return store->check(keys);
}

void StartClaim::withdraw(const Store& store) noexcept {
  try {
    if (has_all(store, key_)) return;
    store->deleteKey(rank_key(key_, rank_));
    exchange_value(store, claim_key(key_, rank_), mine_, "");
  } catch (const std::exception&) {  // the store is gone: nothing to withdraw
  }
}

}  // namespace lockstep::dist
