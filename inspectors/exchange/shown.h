// A value that a cell shows is a result of it: what a trace is told by whoever shows tensors.
#pragma once
#include <ATen/core/Tensor.h>

namespace lockstep::inspect {

/// To be called before `tensor` is written out, on the thread that runs the cell. Local; does nothing where no trace is
/// under way.
void note_shown(const at::Tensor& tensor);

}  // namespace lockstep::inspect
