// The state that the parts of data_findings() share. One fault is one finding: the consequences of a fault go into its
// message.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/data/shares.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/majority.h"

namespace lockstep::inspect {

struct DataJudge {
  const About& about;
  const std::vector<DataFacts>& facts;
  const SampleOrders& orders;
  const Shares shares;
  std::vector<Finding> findings = {};

  // These findings have consequences. They are indices into `findings`.
  std::optional<size_t> division = {};  // why ranks do not divide the samples as they should
  std::optional<size_t> doubled = {};  // ranks read the same samples
  std::optional<size_t> outside = {};
  std::string short_share = {};  // the consequence of a share that was cut off

  Finding finding(Severity severity, Verdict verdict, FindingKind kind, const RankSet& ranks) const;
  /// Returns its index.
  size_t add(Finding finding);
  void add_consequence(size_t cause, const std::string& text);
  /// Returns the ranks that have fewer than the largest count. `counts` are by rank index.
  RankSet with_fewer(const std::vector<int64_t>& counts) const;
  /// Returns the majority; without one, the ranks with fewer are at fault, since the others wait for them.
  Majority majority_or_fewer(const std::vector<int64_t>& counts) const;
  /// Returns "4 on ranks 0-1, 3 on rank 2".
  std::string by_rank(const std::vector<int64_t>& counts) const;
};

void set_ranks(Finding& finding, const Majority& majority);
/// Returns "7, 8, 19, …": the first five.
std::string first_few(const std::vector<int64_t>& indices);
/// Returns "s" for one rank: "rank 1 reads", "ranks 0-1 read".
const char* verb_ending(const RankSet& ranks);

// division.cpp: whether ranks read different samples.
void judge_repeated_epochs(DataJudge& judge);
void judge_division(DataJudge& judge);
void judge_shared_samples(DataJudge& judge);
// batches.cpp: whether ranks have equally many batches of equal sizes.
void judge_counts(DataJudge& judge);
void judge_batch_sizes(DataJudge& judge);
// omissions.cpp: whether every sample of the dataset is read, and nothing else.
void judge_indices(DataJudge& judge);
void judge_omissions(DataJudge& judge);

}  // namespace lockstep::inspect
