// What one rank tells the others first of what it compares: a few numbers, whatever its size. Where they are equal
// nothing else is exchanged.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "inspectors/fingerprint/fingerprint.h"

namespace lockstep::inspect {

struct VerifyFacts {
  Hash structure{};  // names, kinds, dtypes, shapes
  Hash content{};  // all bytes; where they are compared by fingerprint
  bool buffers_written = false;  // a forward of the wrapper has run since it made the buffers equal
  bool out_of_data = false;  // join() has left this rank behind
};

void to_json(nlohmann::json& json, const VerifyFacts& facts);
void from_json(const nlohmann::json& json, VerifyFacts& facts);

}  // namespace lockstep::inspect
