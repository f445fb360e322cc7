// Operators that Python implements (python/lockstep/prompt/_cpp_cells.py). Calling one takes the interpreter's lock.
#pragma once
#include <ATen/core/stack.h>

namespace lockstep::python {

/// Calls lockstep_cells::NAME and returns its results.
torch::jit::Stack call_back(const char* name, torch::jit::Stack arguments);

/// Called when the rank goes on: references that py::tensor() has given hold nothing of the program from here on.
void forget_tensors();

}  // namespace lockstep::python
