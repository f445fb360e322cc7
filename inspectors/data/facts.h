// The facts that ranks exchange about their shares of the data, besides the indices.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace lockstep::inspect {

struct DataFacts {
  std::optional<int64_t> repeated_epoch;  // the order is proven to be that of this earlier epoch
  bool repeats_last_call = false;  // the order is that of the last call, which may have been for the same epoch
  bool has_batches = false;  // SampleOrder
  std::optional<int64_t> size, batch_size, epoch;  // DataOptions
  std::optional<int64_t> reported_epoch;  // SampleOrder
  bool join = false;  // DataOptions
  std::optional<int64_t> worker_seed;  // SampleOrder
};

void to_json(nlohmann::json& json, const DataFacts& facts);
void from_json(const nlohmann::json& json, DataFacts& facts);

}  // namespace lockstep::inspect
