// Describes how ranks divide the samples, as it follows from the orders of all ranks. Judges nothing. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/data/data.h"
#include "protocol/json_fields.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// Holds what ranks exchange about their shares of the data, besides the indices.
struct DataFacts {
  std::optional<int64_t> repeated_epoch;  // the order is proven to be that of this earlier epoch
  bool repeats_last_call = false;  // the order is that of the last call, which may have been for the same epoch
  bool has_batches = false;  // SampleOrder
  std::optional<int64_t> size, batch_size, epoch;  // DataOptions
  std::optional<int64_t> reported_epoch;  // SampleOrder
  bool join = false;  // DataOptions
  std::optional<int64_t> worker_seed;  // SampleOrder
};

LOCKSTEP_JSON(DataFacts, repeated_epoch, repeats_last_call, has_batches, size, batch_size, epoch, reported_epoch, join,
              worker_seed)

/// The orders of all ranks, by rank index.
struct SampleOrders {
  std::vector<std::vector<int64_t>> samples;
  std::vector<std::vector<int64_t>> batches;  // their sizes; empty if they are not known
};

/// One more than messages list, so that they can show that there are others.
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
