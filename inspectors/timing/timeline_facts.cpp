#include "inspectors/timing/timeline_facts.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

void to_json(nlohmann::json& json, const TimelineFacts& facts) { json = {{"machine", facts.machine}}; }

void from_json(const nlohmann::json& json, TimelineFacts& facts) { json.at("machine").get_to(facts.machine); }

void to_json(nlohmann::json& json, const TimelineCounts& counts) {
  json = {{"cells", counts.cells},     {"operators", counts.operators}, {"collectives", counts.collectives},
          {"buckets", counts.buckets}, {"left_out", counts.left_out},   {"clock_error_ns", counts.clock_error_ns}};
}

void from_json(const nlohmann::json& json, TimelineCounts& counts) {
  json.at("cells").get_to(counts.cells);
  json.at("operators").get_to(counts.operators);
  json.at("collectives").get_to(counts.collectives);
  json.at("buckets").get_to(counts.buckets);
  json.at("left_out").get_to(counts.left_out);
  json.at("clock_error_ns").get_to(counts.clock_error_ns);
}

}  // namespace lockstep::inspect
