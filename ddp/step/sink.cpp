#include "ddp/step/sink.h"

#include <torch/custom_class.h>

#include <utility>

namespace lockstep::ddp::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Callback : torch::CustomClassHolder {
  std::function<void()> run;
};

struct Sink : torch::autograd::Function<Sink> {
  static variable_list forward(AutogradContext* context, at::TensorList outputs,
                               const c10::intrusive_ptr<Callback>& callback, bool clone) {
    context->set_materialize_grads(false);
    context->saved_data["callback"] = c10::IValue::make_capsule(callback);
    if (!clone) return outputs.vec();
    variable_list cloned;
    for (const auto& output : outputs) cloned.push_back(output.clone());
    return cloned;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["callback"].toCapsule();
    if (const auto& run = static_cast<Callback*>(capsule.get())->run) run();
    gradients.resize(gradients.size() + 2);  // for the two arguments that are not tensors
    return gradients;
  }
};

}  // namespace

bool has_graph(const torch::Tensor& tensor) { return tensor.defined() && tensor.grad_fn(); }

void pass_through_sink(const TensorPointers& outputs, bool clone, std::function<void()> on_backward) {
  variable_list through;
  for (const auto* output : outputs) {
    if (has_graph(*output)) through.push_back(*output);
  }
  if (through.empty()) return;
  auto callback = c10::make_intrusive<Callback>();
  callback->run = std::move(on_backward);
  const auto passed = Sink::apply(at::TensorList(through), callback, clone);
  size_t next = 0;
  for (auto* output : outputs) {
    if (has_graph(*output)) *output = passed[next++];
  }
}

}  // namespace lockstep::ddp::detail
