#include "inspectors/data/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "collectives/watch/spelling.h"
#include "inspectors/data/judge.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

constexpr const char* kConsequence = "; because of that ";

void add_ok(DataJudge& judge) {
  if (std::ranges::any_of(judge.findings, is_fault)) return;
  const DataNumbers& numbers = judge.shares.numbers;
  Finding found = judge.about.finding(Severity::note, Verdict::ok);
  found.message = fmt::format(
      "{} on {}: {}", counted(numbers.distinct, "sample"), judge.about.ranks.words(),
      all_equal(numbers.samples) ? std::to_string(numbers.samples[0]) + " each" : judge.by_rank(numbers.samples));
  if (!numbers.batches.empty() && all_equal(numbers.batches))
    found.message += fmt::format(" in {}", counted(numbers.batches[0], "batch"));
  if (numbers.padding > 0)
    found.message += fmt::format("; {} repeated so that all ranks have the same number",
                                 numbers.padding == 1 ? "1 is" : fmt::format("{} are", numbers.padding));
  else if (judge.shares.readings.repeated_reads == 0)
    found.message += ", none twice";
  if (!judge.shares.size)
    found.message +=
        fmt::format("; the dataset's size is not known ({}), so omissions are not found", option_text("size", "N"));
  judge.add(std::move(found));
}

void judge_worker_seeds(DataJudge& judge) {
  std::vector<std::optional<int64_t>> seeds;
  for (const DataFacts& each : judge.facts) seeds.push_back(each.worker_seed);
  for (const auto& [seed, ranks] : ranks_by_value(judge.about.ranks, seeds)) {
    if (!seed || ranks.size() < 2) continue;
    Finding found = judge.finding(Severity::note, Verdict::duplicate_data, FindingKind::rng, ranks);
    found.message = fmt::format(
        "the workers of the loader begin with the same seed on {}: random augmentations draw the same numbers there. "
        "Give the loader of each rank a generator with a seed of its own",
        ranks.words());
    judge.add(std::move(found));
  }
}

}  // namespace

Finding DataJudge::finding(Severity severity, Verdict verdict, FindingKind kind, const RankSet& ranks) const {
  Finding result = about.finding(severity, verdict, kind);
  result.ranks = ranks;
  return result;
}

size_t DataJudge::add(Finding finding) {
  findings.push_back(std::move(finding));
  return findings.size() - 1;
}

void DataJudge::add_consequence(size_t cause, const std::string& text) {
  std::string& message = findings[cause].message;
  message += (message.find(kConsequence) == std::string::npos ? kConsequence : ", and ") + text;
}

RankSet DataJudge::with_fewer(const std::vector<int64_t>& counts) const {
  const int64_t most = *std::ranges::max_element(counts);
  RankSet result;
  for (size_t i = 0; i < counts.size(); ++i)
    if (counts[i] < most) result.insert(about.rank_at(i));
  return result;
}

Majority DataJudge::majority_or_fewer(const std::vector<int64_t>& counts) const {
  const Majority majority = majority_of(about.ranks, counts);
  if (!majority.reference.empty()) return majority;
  const RankSet fewer = with_fewer(counts);
  return {.at_fault = fewer, .reference = about.ranks - fewer};
}

std::string DataJudge::by_rank(const std::vector<int64_t>& counts) const {
  std::map<int64_t, RankSet, std::greater<>> groups;
  for (size_t i = 0; i < counts.size(); ++i) groups[counts[i]].insert(about.rank_at(i));
  std::string text;
  for (const auto& [count, ranks] : groups)
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", count, ranks.words());
  return text;
}

void set_ranks(Finding& finding, const Majority& majority) {
  finding.ranks = majority.at_fault;
  finding.reference_ranks = majority.reference;
}

std::string first_few(const std::vector<int64_t>& indices) {
  constexpr size_t kShown = kFirstOmitted - 1;
  std::string text;
  for (size_t i = 0; i < std::min(indices.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(indices[i]);
  return text + (indices.size() > kShown ? ", …" : "");
}

const char* verb_ending(const RankSet& ranks) { return ranks.size() == 1 ? "s" : ""; }

DataJudgement data_findings(const About& about, const std::vector<DataFacts>& facts, const SampleOrders& orders) {
  DataJudge judge{.about = about, .facts = facts, .orders = orders, .shares = shares_of(about.ranks, facts, orders)};
  // Causes come before their consequences.
  judge_repeated_epochs(judge);
  judge_division(judge);
  judge_counts(judge);
  judge_indices(judge);
  judge_shared_samples(judge);
  judge_omissions(judge);
  judge_batch_sizes(judge);
  add_ok(judge);
  judge_worker_seeds(judge);
  return {.numbers = judge.shares.numbers, .findings = std::move(judge.findings)};
}

}  // namespace lockstep::inspect
