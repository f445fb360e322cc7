// Tensors that tests give to collectives.
#pragma once
#include <ATen/ATen.h>

#include <vector>

namespace lockstep {

using Tensors = std::vector<at::Tensor>;

inline at::Tensor filled(double value, at::ScalarType type = at::kFloat) { return at::full({2, 3}, value, type); }

}  // namespace lockstep
