// What ranks have found each on its own, brought together at the end of an inspection: every rank gets the values of all.
#pragma once
#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/exchange/exchange.h"
#include "inspectors/findings/text.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// The ranks that take part: those asked for, or all that are alive. Throws dist::ArgumentError for one that is not there.
RankSet taking_part(const std::optional<RankSet>& ranks, const char* function);
/// The calling rank; 0 where there are no groups.
int own_rank();

/// Collective over `ranks`, one of which the caller is: calls `compare` with a way to talk. A single rank talks to itself.
void with_talk(const RankSet& ranks, std::chrono::milliseconds deadline, const std::function<void(Talk&)>& compare);

/// For ranks that did not come to what `call` names ("inspect::replay").
Finding absent_finding(const std::string& inspector, const std::string& call, const RankSet& ranks,
                       const RankSet& missing, std::chrono::milliseconds deadline);

}  // namespace lockstep::inspect
