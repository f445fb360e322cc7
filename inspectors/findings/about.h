// All findings of one inspection have this in common. The functions that turn facts into findings begin with it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/finding.h"
#include "protocol/rank_set.h"
#include "protocol/verdict.h"

namespace lockstep::inspect {

struct About {
  std::string inspector;  // "verify"
  std::string object;  // "net"; empty where findings name none
  std::optional<int64_t> step;
  RankSet ranks;  // whose facts are judged; lists of facts have this order
  /// What messages call the participants, by rank: saved files that are compared as ranks are. Empty: "rank 2".
  std::vector<std::string> names;

  int rank_at(size_t rank_index) const { return ranks.ranks()[rank_index]; }
  /// Returns the form for a sentence: "ranks 0-1", or "a.pt and b.pt".
  std::string words(const RankSet& some) const;
  std::string words(int rank) const { return words(RankSet{rank}); }
  /// Returns where a value is: "on ranks 0-1", or "in a.pt and b.pt".
  std::string at(const RankSet& some) const { return (names.empty() ? "on " : "in ") + words(some); }
  /// Makes a finding about all ranks, without a message.
  Finding finding(Severity severity, Verdict verdict) const {
    Finding found;
    found.severity = severity;
    found.inspector = inspector;
    found.verdict = verdict;
    found.ranks = ranks;
    if (!object.empty()) found.object = object;
    found.step = step;
    return found;
  }
  Finding finding(Severity severity, Verdict verdict, FindingKind kind) const {
    Finding found = finding(severity, verdict);
    found.kind = kind;
    return found;
  }
};

inline bool is_fault(const Finding& finding) { return finding.severity == Severity::fault; }

}  // namespace lockstep::inspect
