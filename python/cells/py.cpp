#include "python/cells/py.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <utility>

#include "python/cells/callbacks.h"

namespace lockstep::py {
namespace {

/// On the thread that runs cells, or under the interpreter's lock that the call has taken: a cell that uses several
/// threads has to order its calls for one expression itself. Never destroyed: cells hold references.
std::map<std::string, at::Tensor, std::less<>>& slots() {
  static auto* const all = new std::map<std::string, at::Tensor, std::less<>>;
  return *all;
}

/// What went wrong is the last element.
void check(const torch::jit::Stack& results) {
  const std::string problem = results.back().toStringRef();
  if (!problem.empty()) throw Error(problem);
}

}  // namespace

Error::~Error() = default;

at::Tensor& tensor(std::string_view expression) {
  const auto results = python::call_back("tensor", {std::string(expression)});
  check(results);
  at::Tensor& slot = slots()[std::string(expression)];
  slot = results.front().toTensor();
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
  for (auto& [expression, tensor] : py::slots()) tensor = at::Tensor();
}

torch::jit::Stack call_back(const char* name, torch::jit::Stack arguments) {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("lockstep_cells::") + name).c_str(), "")
      .callBoxed(&arguments);
  return arguments;
}

}  // namespace lockstep::python
