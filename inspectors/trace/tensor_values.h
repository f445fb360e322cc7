// What can be said of a tensor's values, of any dtype, layout and device: whether all are finite, and their range.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

struct BadValues {
  int64_t nan = 0, inf = 0;
  bool any() const { return nan > 0 || inf > 0; }
};

/// The values of a tensor of floating point or complex numbers as they lie in memory (of a sparse one, those that it
/// has); undefined where there are none to read (integers, meta and quantized tensors, vmap's).
at::Tensor float_values(const at::Tensor& tensor);
/// One read of memory. Nothing for tensors without such values.
BadValues bad_values(const at::Tensor& tensor);

/// Whether it has integers or bools to read.
bool has_integer_values(const at::Tensor& tensor);

/// "[-3.2, 88.1]", with NaN and the infinities counted: "[-3.2, 88.1], 2 NaN, 1 -Inf". Of integers all digits, of bools
/// "2 of 8 true".
std::string range_text(const at::Tensor& tensor);
/// The place of the first NaN or Inf; empty where there is none.
std::vector<int64_t> first_bad(const at::Tensor& tensor);

/// "float32".
std::string dtype_text(at::ScalarType dtype);
/// "float32 [8, 10]".
std::string shape_text(const at::Tensor& tensor);
/// Name, dtype and shape.
FindingTensor finding_tensor(std::string name, const at::Tensor& tensor);

}  // namespace lockstep::inspect
