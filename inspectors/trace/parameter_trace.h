// Whether a parameter has been changed since one looked: an optimizer has stepped. LibTorch has no hook for that, and
// not every optimizer leaves a trace in the tensor's version (SGD writes through data()), so a few of its elements are
// looked at, too.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::inspect {

/// Another number after a change in place, unless that spares 16 elements that lie spread over the tensor. Local; some
/// tens of loads. Of tensors that are not on the CPU, or not dense, the version alone.
uint64_t trace_of(const at::Tensor& parameter);

}  // namespace lockstep::inspect
