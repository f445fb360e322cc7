// What is wrong with the way in which ranks divide samples, from the orders of all of them. Local.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/data/data.h"
#include "inspectors/exchange/inspection.h"

namespace lockstep::inspect {

/// The orders of all ranks, by place.
struct SampleOrders {
  std::vector<std::vector<int64_t>> samples;
  std::vector<std::vector<int64_t>> batches;  // sizes; empty where they are not known
  // As each rank says; unset where it does not.
  std::vector<std::optional<int64_t>> size, batch_size;  // DataOptions
  std::vector<std::optional<int64_t>> told_epoch;  // SampleOrder
  bool join = false;  // DataOptions, of any rank
  /// Findings about orders of another epoch: a rank that shuffles as in an earlier one reads what others read.
  std::vector<Finding> repeats;
};

/// Fills in the report's numbers, and adds findings to the round: one ok where there is no fault.
void judge(const SampleOrders& orders, DataReport& report, Round& round);

/// From the lowest index to the highest, but for a few at the end that a sampler repeats: nobody shuffled it.
bool in_sequence(const std::vector<int64_t>& samples);

}  // namespace lockstep::inspect
