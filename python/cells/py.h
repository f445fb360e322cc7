// Gives cells of a prompt over a Python job tensors and numbers of the program, by expressions of Python. They are
// evaluated in the frame that is selected at the prompt (%where, %up, %down). For any thread of a cell; each call waits
// for the interpreter's lock, which a cell does not hold.
#pragma once
#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace lockstep::py {

/// The expression has no such value. The message names the expression and what it is instead.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// Returns the tensor that `expression` gives, and no copy of it: what is changed in place, Python sees;
/// `requires_grad`, `grad` and the graph are those of Python. Of a DTensor it is the part that this rank has, without a
/// graph. The reference follows the expression: the next call with the same one makes it the tensor of then. It is an
/// undefined tensor once the rank goes on; a copy, `torch::Tensor w = py::tensor("w");`, stays, and keeps its memory.
/// Throws Error for other objects, and for tensors without storage of their own (subclasses with __torch_dispatch__).
at::Tensor& tensor(std::string_view expression);

/// Returns the number that `expression` gives: int, float, bool, or a tensor or array of one element. Throws Error.
double number(std::string_view expression);

/// Does `target = value` in Python, as a cell of Python assigns it: a name, an attribute, a subscript. Throws Error
/// with Python's reason where it refuses.
void set(std::string_view target, const at::Tensor& value);

}  // namespace lockstep::py

namespace py = lockstep::py;
