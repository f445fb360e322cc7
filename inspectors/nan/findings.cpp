#include "inspectors/nan/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace lockstep::inspect {
namespace {

std::vector<Finding> merged(const About& about, const std::vector<NanFacts>& facts) {
  const bool made_somewhere = std::ranges::any_of(facts, &NanFacts::made_here);
  using Key = std::tuple<Verdict, std::optional<FindingKind>, std::string, std::optional<std::string>>;
  std::map<Key, size_t> known;
  std::vector<Finding> findings;
  for (size_t i = 0; i < facts.size(); ++i) {
    // A rank that received bad values is left out if the rank that made them has a finding.
    if (!facts[i].finding || (made_somewhere && !facts[i].made_here)) continue;
    const Finding& finding = *facts[i].finding;
    const Key key(finding.verdict, finding.kind, finding.op ? finding.op->name : "", finding.where);
    const auto [found, is_new] = known.emplace(key, findings.size());
    if (is_new) findings.push_back(finding);
    findings[found->second].ranks.insert(about.rank_at(i));
  }
  for (Finding& finding : findings) {
    finding.reference_ranks = about.ranks - finding.ranks;
    finding.message = "on " + finding.ranks.words() + " " + finding.message;
  }
  return findings;
}

}  // namespace

std::vector<Finding> nan_findings(const About& about, const std::vector<NanFacts>& facts) {
  std::vector<Finding> findings = merged(about, facts);
  if (!findings.empty()) return findings;
  int64_t operators = 0, harmless = 0;
  for (const NanFacts& each : facts) {
    operators = std::max(operators, each.operators);
    harmless = std::max(harmless, each.harmless);
  }
  Finding ok = about.finding(Severity::note, Verdict::ok);
  ok.message = fmt::format("no NaN or Inf reached a result on {}: {} operators", about.ranks.words(), operators);
  if (harmless > 0)
    ok.message += fmt::format(", {} of which made some that were not used (masked, for example)", harmless);
  return {std::move(ok)};
}

}  // namespace lockstep::inspect
