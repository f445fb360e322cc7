#include "python/cells/py.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "python/cells/callbacks.h"

namespace lockstep::py {
namespace {

/// Holds what tensor() has given references to. Threads of a cell may ask at the same time; those that ask for one
/// expression have to order that themselves, since one of them changes what the others' reference is.
struct Slots {
  std::mutex mutex;
  std::map<std::string, at::Tensor, std::less<>> tensors;
};

// Never destroyed: cells hold references.
Slots& slots() {
  static auto* const all = new Slots;
  return *all;
}

/// The last element says what went wrong.
void check(const torch::jit::Stack& results) {
  const std::string problem = results.back().toStringRef();
  if (!problem.empty()) throw Error(problem);
}

}  // namespace

Error::~Error() = default;

at::Tensor& tensor(std::string_view expression) {
  const auto results = python::call_back("tensor", {std::string(expression)});
  check(results);
  Slots& all = slots();
  at::Tensor value = results.front().toTensor();
  const std::lock_guard lock(all.mutex);
  at::Tensor& slot = all.tensors[std::string(expression)];
  std::swap(slot, value);  // the earlier tensor is released without the lock: its end may take the interpreter's
  return slot;
}

double number(std::string_view expression) {
  const auto results = python::call_back("number", {std::string(expression)});
  check(results);
  return results.front().toDouble();
}

void set(std::string_view target, const at::Tensor& value) {
  check(python::call_back("set", {std::string(target), value}));
}

}  // namespace lockstep::py

namespace lockstep::python {

void forget_tensors() {
  std::vector<at::Tensor> released;  // without the lock
  py::Slots& all = py::slots();
  const std::lock_guard lock(all.mutex);
  for (auto& [expression, tensor] : all.tensors) released.push_back(std::exchange(tensor, at::Tensor()));
}

torch::jit::Stack call_back(const char* name, torch::jit::Stack arguments) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("lockstep_cells::") + name).c_str(), "")
      .callBoxed(&arguments);
  return arguments;
}

}  // namespace lockstep::python
