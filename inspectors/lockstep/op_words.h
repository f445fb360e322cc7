// An operator at which runs part, in words and as a finding; from places as describe_place() gives them, one for each
// run.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "inspectors/lockstep/lockstep.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// "addmm (operator 12, backward of linear, module fc1)".
std::string op_text(const nlohmann::json& place);
/// The first mark that is not the same everywhere; null where all are.
const nlohmann::json* differing(const std::vector<nlohmann::json>& places, const char* which, size_t& index);
/// "norm 3.1402 on rank 0, 3.1398 on rank 1": of the mark at `index`, one rank of each kind.
std::string values_text(const std::vector<nlohmann::json>& places, const char* which, size_t index,
                        const RankSet& ranks, const char* who);
std::string mark_text(const nlohmann::json& mark);
FindingTensor tensor_of(const nlohmann::json& mark, const std::string& otherwise);
Finding finding_at(const nlohmann::json& place, const char* verdict, const char* kind, const LockstepOptions& options);

}  // namespace lockstep::inspect
