#include "ddp/delayed_all_reduce.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <stdexcept>

#include "ddp/state.h"

namespace lockstep::ddp::detail {

DelayedAllReduce::DelayedAllReduce(State& state)
    : hooked_(state.options.param_to_hook_all_reduce()), reduction_(std::make_shared<Reduction>()) {
  int64_t elements = 0;
  std::vector<torch::Tensor> values;
  for (const auto& [name, parameter] : state.options.delay_all_reduce_named_params()) {
    parameters_.push_back(parameter);
    values.push_back(parameter.detach());
    elements += parameter.numel();
    if (parameter.scalar_type() != parameters_[0].scalar_type() || parameter.device() != parameters_[0].device()) {
      throw std::invalid_argument("delay_all_reduce_named_params: " + name +
                                  " differs in type or device from the first one");
    }
  }
  const torch::NoGradGuard no_grad;
  reduction_->buffer = torch::zeros({elements}, parameters_[0].options().requires_grad(false));
  int64_t offset = 0;
  for (const auto& parameter : parameters_) {
    // Detached: a gradient that is a view could not be detached in place by an optimizer's zero_grad.
    views_.push_back(reduction_->buffer.narrow(0, offset, parameter.numel()).view(parameter.sizes()).detach());
    offset += parameter.numel();
  }
  if (state.options.init_sync() && state.world_size > 1) {
    c10d::broadcast_coalesced(state.group, values, static_cast<size_t>(elements * values[0].element_size()), 0);
  }
}

DelayedAllReduce::~DelayedAllReduce() {
  if (accumulator_) accumulator_->del_post_hook(hook_);
}

// Loading, or a change of type, gives the parameter another accumulator.
void DelayedAllReduce::hook_accumulator() {
  auto current = torch::autograd::impl::grad_accumulator(hooked_);
  if (current == accumulator_) return;
  if (accumulator_) accumulator_->del_post_hook(hook_);
  accumulator_ = std::move(current);
  if (!accumulator_) return;  // frozen since
  // Behind the accumulation, so that the hooked parameter may be one of the delayed.
  using torch::autograd::variable_list;
  hook_ = accumulator_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [reduction = reduction_](const variable_list& outputs, const variable_list&) {
        reduction->start();
        return outputs;
      }));
}

void DelayedAllReduce::Reduction::start() {
  if (!reduces || group->getSize() == 1) return;
  const torch::NoGradGuard no_grad;
  buffer.div_(group->getSize());
  std::vector<torch::Tensor> tensors{buffer};
  const auto work = group->allreduce(tensors);
  torch::autograd::Engine::get_default_engine().queue_callback([work] { work->wait(); });
}

void DelayedAllReduce::after_forward(const c10::intrusive_ptr<c10d::ProcessGroup>& group, bool reduces) {
  hook_accumulator();
  reduction_->group = group;
  reduction_->reduces = reduces;
  const torch::NoGradGuard no_grad;
  const bool none =
      std::none_of(parameters_.begin(), parameters_.end(), [](const auto& p) { return p.grad().defined(); });
  if (none) reduction_->buffer.zero_();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& gradient = parameters_[i].mutable_grad();
    if (gradient.defined()) continue;
    gradient = views_[i];
    if (!none) gradient.zero_();
  }
}

void DelayedAllReduce::reset() { reduction_->reduces = false; }

}  // namespace lockstep::ddp::detail
