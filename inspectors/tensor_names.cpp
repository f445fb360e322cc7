#include "inspectors/tensor_names.h"

namespace lockstep::inspect {

std::string TensorName::module() const {
  if (kind == "tensor") return {};
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? object : name.substr(0, dot);
}

void TensorNames::learn(const std::string& object, const torch::nn::Module& module) {
  const auto add = [&](const torch::OrderedDict<std::string, at::Tensor>& tensors, const char* kind) {
    for (const auto& each : tensors)
      if (each.value().defined())
        names_.emplace(each.value().unsafeGetTensorImpl(),
                       TensorName{.object = object, .name = each.key(), .kind = kind});
  };
  add(module.named_parameters(), "parameter");
  add(module.named_buffers(), "buffer");
}

void TensorNames::learn(const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined() && !name.empty())
    names_.emplace(tensor.unsafeGetTensorImpl(), TensorName{.object = name, .name = name, .kind = "tensor"});
}

const TensorName* TensorNames::find(const void* tensor) const {
  const auto found = names_.find(tensor);
  return found == names_.end() ? nullptr : &found->second;
}

}  // namespace lockstep::inspect
