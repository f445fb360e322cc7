// Shows whether a parameter has changed between two moments, since an optimizer has stepped. LibTorch has no hook for
// that, and not every optimizer increments the tensor's version (SGD writes through data()), so some elements are read
// as well.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::inspect {

/// Returns a different number after a change in place, unless the change leaves out the 16 elements that are read,
/// which are spread over the tensor. For tensors on other devices and tensors that are not dense, only the version is
/// used. Local; takes some tens of loads.
uint64_t trace_of(const at::Tensor& parameter);

}  // namespace lockstep::inspect
