#include "inspectors/lockstep/integer_overflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "inspectors/trace/program_log.h"

namespace lockstep::inspect {
namespace {

constexpr size_t kMostCalls = 64;

/// Returns the ranks of a group that this rank is in; empty if the log does not name all of them.
RankSet ranks_of_group(const std::string& name) {
  const auto log = program_log();
  if (!log) return {};
  for (const dist::LoggedGroup& group : dist::CollectiveLogReader(log->mapping()).groups())
    if (group.name == name && group.member && group.unnamed == 0) return RankSet(group.ranks);
  return {};
}

/// Returns nothing if the reduction did not overflow, or if a rank of the group is missing, so that it can't be known.
std::optional<Finding> judge(const About& about, const std::vector<std::optional<ReductionFacts>>& by_rank) {
  const ReductionFacts& first = **std::ranges::find_if(by_rank, [](const auto& each) { return each.has_value(); });
  if (first.group.empty() || !(first.group - about.ranks).empty()) return std::nullopt;
  int64_t input_sum = 0;
  std::set<int64_t> output_sums;
  for (size_t i = 0; i < by_rank.size(); ++i) {
    if (!first.group.contains(about.rank_at(i))) continue;
    if (!by_rank[i]) return std::nullopt;
    input_sum += by_rank[i]->input_sum;
    if (by_rank[i]->output_sum) output_sums.insert(*by_rank[i]->output_sum);
  }
  const std::string& dtype = first.op.dtype;
  const int64_t modulus = modulus_of(dtype);
  if (output_sums.size() != 1 || modulus == 0) return std::nullopt;
  const int64_t output_sum = *output_sums.begin();
  if (input_sum == output_sum || (input_sum - output_sum) % modulus != 0) return std::nullopt;
  Finding finding = about.finding(Severity::fault, Verdict::mismatch, FindingKind::overflow);
  finding.ranks = first.group;
  if (!first.where.empty()) finding.where = first.where;
  finding.message = fmt::format(
      "{} #{} of {} on {} overflowed: the inputs of all ranks add up to {}, the result to {}. The largest {} is {}: "
      "convert to int64 before the reduction",
      first.op.name, first.op.seq, dtype, first.group.words(), input_sum, output_sum, dtype, largest_of(dtype));
  finding.op = first.op;
  return finding;
}

}  // namespace

CallList calls_that_may_overflow(const std::vector<IntegerReduction>& reductions) {
  CallList calls;
  for (const IntegerReduction& each : reductions) {
    const RankSet group = ranks_of_group(each.call.group);
    if (!group.empty() && may_overflow(each, group.size()) && calls.size() < kMostCalls)
      calls.emplace_back(each.call.group, each.call.seq);
  }
  return calls;
}

std::set<CallList::value_type> suspected_calls(const std::vector<RunFacts>& facts) {
  std::set<CallList::value_type> calls;
  for (const RunFacts& each : facts) calls.insert(each.may_overflow.begin(), each.may_overflow.end());
  return calls;
}

std::vector<std::optional<ReductionFacts>> reduction_facts(const std::vector<IntegerReduction>& reductions,
                                                           const std::set<CallList::value_type>& calls) {
  std::vector<std::optional<ReductionFacts>> result;
  for (const auto& [group, seq] : calls) {
    const auto found = std::ranges::find_if(
        reductions, [&](const IntegerReduction& each) { return each.call.group == group && each.call.seq == seq; });
    if (found == reductions.end()) {
      result.emplace_back();
      continue;
    }
    result.push_back(ReductionFacts{.op = dist::to_finding_op(found->call),
                                    .group = ranks_of_group(group),
                                    .where = describe_call_site(found->site),
                                    .input_sum = found->input_sum,
                                    .output_sum = found->output_sum});
  }
  return result;
}

std::vector<Finding> overflow_findings(const About& about,
                                       const std::vector<std::vector<std::optional<ReductionFacts>>>& seen) {
  std::vector<Finding> findings;
  for (size_t call = 0; !seen.empty() && call < seen[0].size(); ++call) {
    std::vector<std::optional<ReductionFacts>> by_rank;
    for (const auto& each : seen) by_rank.push_back(each[call]);
    if (auto finding = judge(about, by_rank)) findings.push_back(*std::move(finding));
  }
  return findings;
}

}  // namespace lockstep::inspect
