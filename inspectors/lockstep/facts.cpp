#include "inspectors/lockstep/facts.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

void to_json(nlohmann::json& json, const SelfFacts& facts) {
  json = {{"finding", facts.finding ? nlohmann::json(*facts.finding) : nlohmann::json()},
          {"collectives", facts.collectives},
          {"operators", facts.operators},
          {"left_out", facts.left_out}};
}

void from_json(const nlohmann::json& json, SelfFacts& facts) {
  if (!json.at("finding").is_null()) facts.finding = json.at("finding").get<Finding>();
  facts.collectives = json.at("collectives");
  facts.operators = json.at("operators");
  facts.left_out = json.at("left_out");
}

void to_json(nlohmann::json& json, const RunFacts& facts) {
  json = {
      {"digest", facts.digest},       {"operators", facts.operators},           {"left_out", facts.left_out},
      {"backwards", facts.backwards}, {"read_too_early", facts.read_too_early}, {"may_overflow", facts.may_overflow}};
}

void from_json(const nlohmann::json& json, RunFacts& facts) {
  facts.digest = json.at("digest");
  facts.operators = json.at("operators");
  facts.left_out = json.at("left_out");
  facts.backwards = json.at("backwards");
  facts.read_too_early = json.at("read_too_early");
  facts.may_overflow = json.at("may_overflow").get<CallList>();
}

}  // namespace lockstep::inspect
