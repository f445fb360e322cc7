// Finds which ranks read which samples, from the orders of all ranks, sorted once. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// The orders of all ranks, by rank index.
struct SampleOrders {
  std::vector<std::vector<int64_t>> samples;
  std::vector<std::vector<int64_t>> batches;  // their sizes; empty if they are not known
};

/// Is one more than messages list, so that they can show that there are others.
inline constexpr size_t kFirstOmitted = 6;

struct Readings {
  int64_t distinct = 0, in_range = 0;
  int64_t repeated_reads = 0;  // all reads of a sample but the first
  std::vector<int64_t> shared;  // samples of more than one rank
  RankSet sharers;  // their ranks
  RankSet repeaters;  // ranks that read a sample more than once
  int64_t repeats = 0;  // of these
  std::vector<int64_t> omitted;  // the first ones, at most kFirstOmitted
  int64_t omitted_count = 0;
  std::vector<int64_t> outside;  // indices beyond the dataset
  RankSet outsiders;  // their ranks
};

/// `size` is that of the dataset, if it is known.
Readings read(const SampleOrders& orders, const RankSet& ranks, std::optional<int64_t> size);

/// Returns sets of ranks that read the same samples in the same order.
std::vector<RankSet> same_order(const SampleOrders& orders, const RankSet& ranks);

}  // namespace lockstep::inspect
