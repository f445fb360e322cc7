// What is wrong with the way in which ranks divide samples. Pure: facts and orders in, numbers and findings out.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/data/facts.h"
#include "inspectors/findings/about.h"

namespace lockstep::inspect {

/// The orders of all ranks, by rank index.
struct SampleOrders {
  std::vector<std::vector<int64_t>> samples;
  std::vector<std::vector<int64_t>> batches;  // sizes; empty where they are not known
};

struct DataNumbers {
  std::vector<int64_t> samples;  // that each rank reads, by rank index
  std::vector<int64_t> batches;  // the same; empty where they are not known
  int64_t distinct = 0;  // over all ranks
  int64_t shared = 0;  // samples that more than one rank reads
  int64_t padding = 0;  // reads that make the ranks' counts equal, as a distributed sampler repeats some
  std::optional<int64_t> omitted;  // of the dataset, read by no rank; unset without its size
};

struct DataJudgement {
  DataNumbers numbers;
  std::vector<Finding> findings;  // an `ok` among them where there is no fault
};

DataJudgement data_findings(const About& about, const std::vector<DataFacts>& facts, const SampleOrders& orders);

/// From the lowest index to the highest, but for a few at the end that a sampler repeats: not shuffled.
bool in_sequence(const std::vector<int64_t>& samples);

}  // namespace lockstep::inspect
