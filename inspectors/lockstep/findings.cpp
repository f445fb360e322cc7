#include "inspectors/lockstep/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace lockstep::inspect {

std::vector<Finding> self_findings(const About& about, const std::vector<SelfFacts>& facts, int64_t max_operators) {
  int64_t left_out = 0, earliest = std::numeric_limits<int64_t>::max();
  for (const SelfFacts& each : facts) {
    left_out = std::max(left_out, each.left_out);
    earliest = std::min(earliest, each.collectives);
  }
  std::vector<Finding> findings;
  using Key = std::tuple<Verdict, std::optional<FindingKind>, int64_t, std::optional<std::string>>;
  std::map<Key, size_t> known;
  RankSet fine;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!facts[i].finding) {
      fine.insert(about.rank_at(i));
      continue;
    }
    const Finding& finding = *facts[i].finding;
    // What differs on one rank reaches the others through a reduction, so their notes are consequences.
    if (finding.severity != Severity::fault && facts[i].collectives > earliest) continue;
    const Key key(finding.verdict, finding.kind, finding.op ? finding.op->seq : 0, finding.where);
    const auto [found, is_new] = known.emplace(key, findings.size());
    if (is_new) findings.push_back(finding);
    findings[found->second].ranks.insert(about.rank_at(i));
  }
  if (std::ranges::any_of(findings, is_fault)) std::erase_if(findings, std::not_fn(is_fault));
  for (Finding& finding : findings) {
    finding.reference_ranks = fine;
    finding.message = "on " + finding.ranks.words() + " " + finding.message;
  }
  if (!findings.empty()) return findings;
  Finding ok = about.finding(Severity::note, Verdict::ok);
  ok.message = fmt::format("both runs of the step are equal bit by bit on {}: {} operators", about.ranks.words(),
                           facts[0].operators);
  if (left_out > 0)
    ok.message +=
        fmt::format("; {} operators beyond the first {} were not compared (max_operators)", left_out, max_operators);
  return {std::move(ok)};
}

}  // namespace lockstep::inspect
