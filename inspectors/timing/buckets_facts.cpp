#include "inspectors/timing/buckets.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

using nlohmann::json;

namespace {

json optional(const std::optional<double>& value) { return value ? json(*value) : json(); }
std::optional<double> optional(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

}  // namespace

void to_json(json& value, const RankBuckets& rank) {
  json buckets = json::array();
  for (const BucketTimes& each : rank.buckets)
    buckets.push_back({each.ready, optional(each.start), optional(each.end)});
  value = {{"rank", rank.rank},
           {"buckets", buckets},
           {"backward_end", rank.backward_end},
           {"hidden", optional(rank.hidden)},
           {"exposed", rank.exposed},
           {"recording_began", rank.recording_began}};
}

void from_json(const json& value, RankBuckets& result) {
  result.rank = value.at("rank");
  for (const json& each : value.at("buckets"))
    result.buckets.push_back({each.at(0), optional(each.at(1)), optional(each.at(2))});
  result.backward_end = value.at("backward_end");
  result.hidden = optional(value.at("hidden"));
  result.exposed = value.at("exposed");
  result.recording_began = value.at("recording_began");
}

}  // namespace lockstep::inspect
