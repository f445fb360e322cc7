// A bucket is the gradients that the Reducer reduces in one piece.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::ddp {

struct Bucket {
  size_t index;  // in the order of reduction
  /// Names of its parameters and their indices in the Reducer stand in the bucket's order.
  std::vector<std::string> parameters;
  std::vector<size_t> parameter_indices;
  int64_t bytes;
};

}  // namespace lockstep::ddp
