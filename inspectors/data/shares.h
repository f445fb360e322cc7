// Says how ranks divide the samples: what follows from the orders of all ranks before anything is judged. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/data/facts.h"
#include "inspectors/data/sample_readings.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct DataNumbers {
  std::vector<int64_t> samples;  // that each rank reads, by rank index
  std::vector<int64_t> batches;  // of each rank; empty if they are not known
  int64_t distinct = 0;  // samples over all ranks
  int64_t shared = 0;  // samples that more than one rank reads
  int64_t padding = 0;  // reads that a distributed sampler repeats so that all ranks have the same number
  std::optional<int64_t> omitted;  // samples of the dataset that no rank reads; unset if its size is not known
};

struct Shares {
  DataNumbers numbers;
  std::optional<int64_t> size;  // of the dataset; if ranks give different sizes, the most frequent
  bool sizes_differ = false;
  std::vector<int64_t> batch_sizes;  // of full batches, by rank index; empty if they are not known
  int64_t batch_unit = 1;  // the largest batch size of the options; 1 without any
  Readings readings;
  bool shuffled = false;  // on some rank
  bool padded = false;  // equal shares of all samples, apart from repetitions
  bool with_replacement = false;  // drawn, so that a rank reads some samples twice
  bool join = false;
};

/// `facts` are by rank index, as the orders.
Shares shares_of(const RankSet& ranks, const std::vector<DataFacts>& facts, const SampleOrders& orders);

/// Whether indices increase, except for a few at the end that a sampler repeats: not shuffled.
bool in_sequence(const std::vector<int64_t>& samples);

bool all_equal(const std::vector<int64_t>& values);

}  // namespace lockstep::inspect
