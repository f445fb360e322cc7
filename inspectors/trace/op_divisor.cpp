#include "inspectors/trace/op_divisor.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace lockstep::inspect {
namespace {

/// Returns a number, or the value of a tensor of one element that can be read without waiting for a device; else 0.
double number_in(const c10::IValue& value) {
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isDouble()) return value.toDouble();
  if (!value.isTensor() || !value.toTensor().defined()) return 0;
  const at::Tensor& tensor = value.toTensor();
  const bool readable = tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.numel() == 1 &&
                        !tensor.is_complex() && !tensor.is_quantized();
  return readable ? tensor.item<double>() : 0;
}

/// Returns the sum of the class weights of the targets that a loss counts; their number without weights.
double weight_of_targets(const at::Tensor& target, const at::Tensor& weight, int64_t ignored) {
  const at::Tensor counted = target.detach().reshape({-1});
  const at::Tensor kept = counted.masked_select(counted.ne(ignored));
  if (!weight.defined() || kept.numel() == 0) return static_cast<double>(kept.numel());
  if (kept.min().item<int64_t>() < 0 || kept.max().item<int64_t>() >= weight.numel())
    return 0;  // the operator itself throws
  return weight.detach().index_select(0, kept.to(at::kLong)).sum().item<double>();
}

}  // namespace

double divisor_of(const RunningOp& op, c10::ArrayRef<c10::IValue> inputs) {
  if (inputs.empty() || !inputs[0].isTensor() || !inputs[0].toTensor().defined()) return 0;
  const at::Tensor& self = inputs[0].toTensor();
  const std::string name = op.name.ends_with("_") ? op.name.substr(0, op.name.size() - 1) : op.name;
  if (name == "mean") return static_cast<double>(self.numel());
  if (name == "div" || name == "divide" || name == "true_divide")
    return self.numel() == 1 && inputs.size() > 1 ? number_in(inputs[1]) : 0;
  if (name == "mul" || name == "multiply") {
    const double factor = self.numel() == 1 && inputs.size() > 1 ? number_in(inputs[1]) : 0;
    return factor == 0 ? 0 : 1 / factor;
  }

  const bool loss =
      name.find("loss") != std::string::npos || name.find("cross_entropy") != std::string::npos || name == "kl_div";
  if (!loss || name == "ctc_loss") return 0;  // ctc_loss divides each sample by its own length
  const auto handle = op.handle();
  if (!handle) return 0;
  const auto argument = [&](const char* wanted) -> const c10::IValue* {
    const auto index = handle->schema().argumentIndexWithName(wanted);
    return index && static_cast<size_t>(*index) < inputs.size() ? &inputs[static_cast<size_t>(*index)] : nullptr;
  };
  const c10::IValue* reduction = argument("reduction");
  if (!reduction || !reduction->isInt() || reduction->toInt() != at::Reduction::Mean) return 0;
  const c10::IValue *target = argument("target"), *ignored = argument("ignore_index"), *weight = argument("weight");
  const bool classes = target && target->isTensor() && target->toTensor().defined() && ignored && ignored->isInt() &&
                       c10::isIntegralType(target->toTensor().scalar_type(), /*includeBool=*/false);
  // If targets are probabilities, each sample counts once.
  if (!classes && ignored && self.dim() > 1)
    return static_cast<double>(self.numel()) / static_cast<double>(self.size(1));
  if (!classes) return static_cast<double>(self.numel());
  if (!target->toTensor().device().is_cpu()) return 0;
  return weight_of_targets(target->toTensor(), weight && weight->isTensor() ? weight->toTensor() : at::Tensor(),
                           ignored->toInt());
}

}  // namespace lockstep::inspect
