// Who reads which samples, over all ranks: from the orders of all of them, sorted once. Local.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/data/findings.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// More than are shown, so that a reader sees that there are others.
inline constexpr size_t kFirstOmitted = 6;

struct Readings {
  int64_t distinct = 0, in_range = 0;
  int64_t repeated_reads = 0;  // beyond a sample's first one
  std::vector<int64_t> shared;  // samples of more than one rank
  RankSet sharers;
  RankSet repeaters;  // ranks that read a sample more than once
  int64_t repeats = 0;
  std::vector<int64_t> omitted;  // the first few: at most kFirstOmitted
  int64_t omitted_count = 0;
  std::vector<int64_t> outside;  // of the dataset
  RankSet outsiders;
};

/// `size`: of the dataset, where it is known.
Readings read(const SampleOrders& orders, const RankSet& ranks, std::optional<int64_t> size);

/// Sets of ranks that read the same samples in the same order.
std::vector<RankSet> same_order(const SampleOrders& orders, const RankSet& ranks);

}  // namespace lockstep::inspect
