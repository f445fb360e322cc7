// What all findings of one inspection have in common. The functions that turn facts into findings begin with it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct About {
  std::string inspector;  // "verify"
  std::string object;  // "net"; empty where findings name none
  std::optional<int64_t> step;
  RankSet ranks;  // whose facts are judged; lists of facts have this order

  int rank_at(size_t rank_index) const { return ranks.ranks()[rank_index]; }
  /// Of all ranks, without kind and message.
  Finding finding(Severity severity, std::string verdict) const {
    Finding found;
    found.severity = severity;
    found.inspector = inspector;
    found.verdict = std::move(verdict);
    found.ranks = ranks;
    if (!object.empty()) found.object = object;
    found.step = step;
    return found;
  }
};

}  // namespace lockstep::inspect
