#include "inspectors/lockstep/overflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"
#include "inspectors/lockstep/facts.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

constexpr size_t kMostCalls = 64;

/// The ranks of a group that this rank is in; empty where the log does not name all of them.
RankSet ranks_of_group(const std::string& name) {
  const auto context = dist::current_context();
  if (!context) return {};
  for (const dist::LoggedGroup& group : dist::CollectiveLogReader(context->log()->mapping()).groups())
    if (group.name == name && group.member && group.ranks.size() < dist::log_layout::kRanksPerGroup)
      return RankSet(group.ranks);
  return {};
}

json describe(const IntegerReduction& reduction) {
  const RankSet group = ranks_of_group(reduction.call.group);
  return {{"op", dist::to_finding_op(reduction.call)},
          {"root", reduction.call.root},
          {"group", group.ranks()},
          {"where", describe_call_site(reduction.site)},
          {"brought", reduction.brought},
          {"came_out", reduction.came_out ? json(*reduction.came_out) : json()}};
}

/// What the ranks of its group saw of one reduction; nothing where it did not run over, or nobody can say.
std::optional<Finding> judge(const std::vector<json>& seen, const RankSet& ranks, const LockstepOptions& options) {
  const json& first = *std::ranges::find_if(seen, [](const json& each) { return !each.is_null(); });
  const RankSet group(first.at("group").get<std::vector<int>>());
  if (group.empty() || !(group - ranks).empty()) return std::nullopt;
  int64_t brought = 0;
  std::set<int64_t> came_out;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!group.contains(ranks.ranks()[i])) continue;
    if (seen[i].is_null()) return std::nullopt;
    brought += seen[i].at("brought").get<int64_t>();
    if (!seen[i].at("came_out").is_null()) came_out.insert(seen[i].at("came_out").get<int64_t>());
  }
  const auto op = first.at("op").get<FindingOp>();
  const int64_t modulus = modulus_of(op.dtype);
  if (came_out.size() != 1 || modulus == 0 || brought == *came_out.begin() ||
      (brought - *came_out.begin()) % modulus != 0)
    return std::nullopt;
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "lockstep";
  finding.verdict = "mismatch";
  finding.kind = "overflow";
  finding.ranks = group;
  finding.step = options.step();
  if (const std::string where = first.at("where"); !where.empty()) finding.where = where;
  finding.message = fmt::format(
      "{} #{} of {} on {} ran over: the elements that the ranks brought add up to {}, those that came out to {}. The "
      "largest {} is {}: "
      "convert to int64 before the reduction",
      op.name, op.seq, op.dtype, group.words(), brought, *came_out.begin(), op.dtype, largest_of(op.dtype));
  finding.op = op;
  return finding;
}

}  // namespace

CalledBy calls_that_may_run_over(const std::vector<IntegerReduction>& mine) {
  CalledBy calls;
  for (const IntegerReduction& each : mine) {
    const RankSet group = ranks_of_group(each.call.group);
    if (!group.empty() && may_run_over(each, group.size()) && calls.size() < kMostCalls)
      calls.emplace_back(each.call.group, each.call.seq);
  }
  return calls;
}

std::vector<Finding> reductions_that_ran_over(Exchange& exchange, const std::vector<IntegerReduction>& mine,
                                              const std::vector<RunFacts>& facts, const LockstepOptions& options) {
  std::set<std::pair<std::string, int64_t>> wanted;
  for (const RunFacts& each : facts) wanted.insert(each.may_run_over.begin(), each.may_run_over.end());
  if (wanted.empty()) return {};
  json seen_here = json::array();
  for (const auto& [group, seq] : wanted) {
    const auto found = std::ranges::find_if(
        mine, [&](const IntegerReduction& each) { return each.call.group == group && each.call.seq == seq; });
    seen_here.push_back(found == mine.end() ? json() : describe(*found));
  }
  const std::vector<json> all = exchange.gather_json(seen_here);
  std::vector<Finding> findings;
  for (size_t call = 0; call < wanted.size(); ++call) {
    std::vector<json> seen;
    for (const json& each : all) seen.push_back(each.at(call));
    if (auto finding = judge(seen, exchange.ranks(), options)) findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace lockstep::inspect
