#include "inspectors/nan/facts.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

void to_json(nlohmann::json& json, const NanFacts& facts) {
  json = {{"finding", facts.finding ? nlohmann::json(*facts.finding) : nlohmann::json()},
          {"made_here", facts.made_here},
          {"operators", facts.operators},
          {"harmless", facts.harmless}};
}

void from_json(const nlohmann::json& json, NanFacts& facts) {
  if (!json.at("finding").is_null()) facts.finding = json.at("finding").get<Finding>();
  facts.made_here = json.at("made_here");
  facts.operators = json.at("operators");
  facts.harmless = json.at("harmless");
}

}  // namespace lockstep::inspect
