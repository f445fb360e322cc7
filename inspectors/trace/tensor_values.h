// Reads the values of a tensor of any dtype, layout and device: whether all are finite, and their range.
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

/// Whether its class dispatches operators in Python, as DTensor does: its storage has no memory. The operators that it calls
/// on the tensors inside are seen by themselves.
bool dispatches_in_python(const at::Tensor& tensor);

/// Returns the values of a tensor of floating point or complex numbers in the order of memory (of a sparse tensor, its
/// explicit values); undefined for tensors without readable ones (integers, meta and quantized tensors, those of vmap,
/// those that dispatch in Python).
at::Tensor float_values(const at::Tensor& tensor);
/// Reads memory once. Returns zeros for tensors without float_values().
BadValues bad_values(const at::Tensor& tensor);
/// Reads several tensors, in order. Those of one device are read in one launch, which this call waits for.
std::vector<BadValues> bad_values(at::TensorList tensors);

/// Whether it has integers or bools that can be read.
bool has_integer_values(const at::Tensor& tensor);

// The next two read a tensor on its own device, and copy the answer to the host.
/// Returns "[-3.2, 88.1]", and the numbers of NaN and Inf: "[-3.2, 88.1], 2 NaN, 1 -Inf". Integers have all digits; of
/// bools it is "2 of 8 true".
std::string range_text(const at::Tensor& tensor);
/// Returns the index of the first NaN or Inf; empty if there is none.
std::vector<int64_t> first_bad(const at::Tensor& tensor);

/// Returns "float32".
std::string dtype_text(at::ScalarType dtype);
/// Returns "float32 [8, 10]".
std::string shape_text(const at::Tensor& tensor);
/// Has name, dtype and shape.
FindingTensor finding_tensor(std::string name, const at::Tensor& tensor);

}  // namespace lockstep::inspect
