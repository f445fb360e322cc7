#include "inspectors/verify/facts.h"

#include <nlohmann/json.hpp>

namespace lockstep::inspect {

void to_json(nlohmann::json& json, const VerifyFacts& facts) {
  json = {{"structure", facts.structure},
          {"content", facts.content},
          {"buffers_written", facts.buffers_written},
          {"out_of_data", facts.out_of_data}};
  if (facts.dropout) json["dropout"] = *facts.dropout;
  if (facts.inputs) json["inputs"] = *facts.inputs;
}

void from_json(const nlohmann::json& json, VerifyFacts& facts) {
  facts.structure = json.at("structure");
  facts.content = json.at("content");
  facts.buffers_written = json.at("buffers_written");
  facts.out_of_data = json.at("out_of_data");
  if (json.contains("dropout")) facts.dropout = json.at("dropout").get<Hash>();
  if (json.contains("inputs")) facts.inputs = json.at("inputs").get<Hash>();
}

}  // namespace lockstep::inspect
