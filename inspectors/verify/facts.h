// Ranks exchange these facts about the compared object. They are of a fixed size, and if they are equal, nothing else
// is exchanged.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "inspectors/fingerprint/fingerprint.h"

namespace lockstep::inspect {

struct VerifyFacts {
  Hash structure{};  // names, kinds, dtypes, shapes
  Hash content{};  // of all items, if they are compared by fingerprint
  bool buffers_written = false;  // a forward of the wrapper has run since it made the buffers equal
  bool out_of_data = false;  // in join()
  std::optional<Hash> dropout, inputs;  // as in Subject
};

void to_json(nlohmann::json& json, const VerifyFacts& facts);
void from_json(const nlohmann::json& json, VerifyFacts& facts);

}  // namespace lockstep::inspect
