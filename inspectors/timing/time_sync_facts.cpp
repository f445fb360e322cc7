#include "inspectors/timing/time_sync.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {
namespace {

nlohmann::json of_spread(const Spread& spread) { return {spread.median, spread.low, spread.high}; }
Spread to_spread(const nlohmann::json& json) { return {json.at(0), json.at(1), json.at(2)}; }

}  // namespace

void to_json(nlohmann::json& json, const TimeSyncFacts& facts) {
  json = {{"rank", facts.times.rank},
          {"synchronised", of_spread(facts.times.synchronised)},
          {"unsynchronised", of_spread(facts.times.unsynchronised)},
          {"forward", facts.times.forward},
          {"backward", facts.times.backward},
          {"rest", facts.times.rest},
          {"reduction", facts.reduction ? of_spread(*facts.reduction) : nlohmann::json()}};
}

void from_json(const nlohmann::json& json, TimeSyncFacts& facts) {
  facts.times = {.rank = json.at("rank"),
                 .synchronised = to_spread(json.at("synchronised")),
                 .unsynchronised = to_spread(json.at("unsynchronised")),
                 .forward = json.at("forward"),
                 .backward = json.at("backward"),
                 .rest = json.at("rest")};
  if (!json.at("reduction").is_null()) facts.reduction = to_spread(json.at("reduction"));
}

}  // namespace lockstep::inspect
