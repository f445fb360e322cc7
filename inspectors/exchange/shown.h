// Values that a cell shows are among its results, so code that shows tensors reports them to a running trace.
#pragma once
#include <ATen/core/Tensor.h>

namespace lockstep::inspect {

/// Called before `tensor` is written out, on the thread that runs the cell. Local; does nothing without a running
/// trace.
void note_shown(const at::Tensor& tensor);

}  // namespace lockstep::inspect
