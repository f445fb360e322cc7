// A Python function hands its operator JSON beside the tensors, and gets JSON back. The operators have no types of
// Python in them, so one library serves every Python that a version of torch has.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inspectors/exchange/report.h"

namespace lockstep::python {

/// The arguments of an operator. JSON refers to tensors by their index in the list.
struct Call {
  std::vector<at::Tensor> tensors;
  nlohmann::json arguments;

  const at::Tensor& tensor(const nlohmann::json& index) const { return tensors.at(index.get<size_t>()); }
};

/// Converts seconds as Python has them, of which there may be an infinite number: 10 years at most, since later moments
/// do not fit into the nanoseconds of clocks.
std::chrono::milliseconds duration_of(const nlohmann::json& seconds);

/// Sets what the options of every inspector have: name, ranks, deadline (in seconds), step.
template <typename Options>
Options common_options(const nlohmann::json& arguments) {
  Options options;
  if (const auto name = arguments.value("name", std::string()); !name.empty()) options.name(name);
  if (const auto& ranks = arguments.at("ranks"); !ranks.is_null())
    options.ranks(RankSet(ranks.get<std::vector<int>>()));
  options.deadline(duration_of(arguments.at("deadline")));
  if (const auto& step = arguments.at("step"); !step.is_null()) options.step(step.get<int64_t>());
  return options;
}

/// Thrown where a function of Python has raised: Python keeps the exception and raises it again.
struct PythonRaised {};

/// A function of Python, by its address (ctypes). It is called on the thread that runs the operator, which does not
/// hold the interpreter's lock; ctypes takes it. Returns 0, or 1 when it has raised.
using PythonFunction = int (*)(int64_t argument);
PythonFunction python_function(const nlohmann::json& address);
/// Calls it. Throws PythonRaised.
void call_python(PythonFunction function, int64_t argument = 0);

/// Runs `function` as the operator of `call`, and returns its result as text. An exception becomes an object "error"
/// with a type that Python has, too, and a message.
std::string run_operator(const std::vector<at::Tensor>& tensors, const std::string& call,
                         const std::function<nlohmann::json(const Call&)>& function);

}  // namespace lockstep::python
