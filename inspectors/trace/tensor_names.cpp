#include "inspectors/trace/tensor_names.h"

#include <utility>

#include "ddp/inspection.h"

namespace lockstep::inspect {

std::string TensorName::module() const {
  if (kind == "tensor") return {};
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? object : name.substr(0, dot);
}

std::optional<int64_t> TensorName::steps() const {
  const auto module = wrapped.lock();
  if (!module) return std::nullopt;
  const auto wrapper = ddp::Inspection::wrapper_of(*module);
  return wrapper ? std::optional(wrapper->steps()) : std::nullopt;
}

void TensorNames::learn(const std::string& object, const torch::nn::Module& module) {
  const bool wrapped = ddp::Inspection::wrapper_of(module).has_value();
  const auto add = [&](const torch::OrderedDict<std::string, at::Tensor>& tensors, const char* kind) {
    for (const auto& each : tensors) {
      if (!each.value().defined()) continue;
      const auto place = names_.emplace(each.value().unsafeGetTensorImpl(),
                                        TensorName{.object = object, .name = each.key(), .kind = kind, .wrapped = {}});
      if (wrapped) place.first->second.wrapped = module.weak_from_this();
    }
  };
  add(module.named_parameters(), "parameter");
  add(module.named_buffers(), "buffer");
}

void TensorNames::learn(const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined() && !name.empty())
    names_.emplace(tensor.unsafeGetTensorImpl(),
                   TensorName{.object = name, .name = name, .kind = "tensor", .wrapped = {}});
}

void TensorNames::learn(TensorName name, const at::Tensor& tensor) {
  if (tensor.defined()) names_.emplace(tensor.unsafeGetTensorImpl(), std::move(name));
}

const TensorName* TensorNames::find(const void* tensor) const {
  const auto found = names_.find(tensor);
  return found == names_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::inspect
