#include "ddp/step/accumulators.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <memory>

namespace lockstep::ddp::detail {
namespace {

// Nodes are held by shared_ptr, in later LibTorch by intrusive_ptr.
template <class N>
std::weak_ptr<N> weak(const std::shared_ptr<N>& node) {
  return node;
}
template <class N>
c10::weak_intrusive_ptr<N> weak(const c10::intrusive_ptr<N>& node) {
  return c10::weak_intrusive_ptr<N>(node);
}

}  // namespace

Accumulators::~Accumulators() {
  for (auto& [node, key] : hooks_) node->del_post_hook(key);
}

void Accumulators::remember(const std::vector<torch::Tensor>& parameters) {
  nodes_.clear();
  for (const auto& parameter : parameters) nodes_.push_back(torch::autograd::impl::grad_accumulator(parameter));
}

void Accumulators::restore(size_t index, const torch::Tensor& parameter) const {
  if (index >= nodes_.size()) return;
  if (torch::autograd::impl::try_get_grad_accumulator(parameter) == nodes_[index]) return;
  auto variable = parameter;
  torch::autograd::impl::set_grad_accumulator(variable, weak(nodes_[index]));
}

void Accumulators::watch(const std::vector<torch::Tensor>& parameters, const std::function<void(size_t)>& on_gradient) {
  if (!hooks_.empty()) return;
  using torch::autograd::variable_list;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    const auto key = node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [on_gradient, i](const variable_list& outputs, const variable_list&) {
          on_gradient(i);
          return outputs;
        }));
    hooks_.emplace_back(std::move(node), key);
  }
}

}  // namespace lockstep::ddp::detail
