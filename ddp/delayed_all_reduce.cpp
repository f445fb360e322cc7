#include "ddp/delayed_all_reduce.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "collectives/log/meetings.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {

DelayedAllReduce::DelayedAllReduce(const Options& options, const TrainingGroup& group)
    : hooked_(options.param_to_hook_all_reduce()), reduction_(std::make_shared<Reduction>()) {
  auto& parameters = reduction_->parameters;
  int64_t elements = 0;
  std::vector<torch::Tensor> values;
  for (const auto& [name, parameter] : options.delay_all_reduce_named_params()) {
    parameters.push_back(parameter);
    values.push_back(parameter.detach());
    elements += parameter.numel();
    if (parameter.scalar_type() != parameters[0].scalar_type() || parameter.device() != parameters[0].device()) {
      throw ArgumentError("delay_all_reduce_named_params: " + name +
                          " differs in type or device from the first one. Name parameters of one type on one device");
    }
  }
  const torch::NoGradGuard no_grad;
  reduction_->buffer = torch::zeros({elements}, parameters[0].options().requires_grad(false));
  int64_t offset = 0;
  for (const auto& parameter : parameters) {
    // The view is detached: an optimizer's zero_grad could not detach a gradient that is a view in place.
    reduction_->views.push_back(
        reduction_->buffer.narrow(0, offset, parameter.numel()).view(parameter.sizes()).detach());
    offset += parameter.numel();
  }
  if (options.init_sync() && group.size() > 1 && !dist::is_rejoining()) {
    c10d::broadcast_coalesced(group.get(), values, static_cast<size_t>(elements * values[0].element_size()), 0);
  }
}

DelayedAllReduce::~DelayedAllReduce() {
  if (accumulator_) accumulator_->del_post_hook(hook_);
}

// Loading or a change of type gives the parameter another accumulator.
void DelayedAllReduce::hook_accumulator() {
  auto current = torch::autograd::impl::grad_accumulator(hooked_);
  if (current == accumulator_) return;
  if (accumulator_) accumulator_->del_post_hook(hook_);
  accumulator_ = std::move(current);
  if (!accumulator_) return;  // frozen since
  // This comes after the accumulation, so that the hooked parameter may be one of the delayed.
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
  gather_gradients();
  buffer.div_(group->getSize());
  std::vector<torch::Tensor> tensors{buffer};
  const auto work = group->allreduce(tensors);
  torch::autograd::Engine::get_default_engine().queue_callback([work] { work->wait(); });
}

// Gradients that were set to none after forward are new tensors with memory of their own.
void DelayedAllReduce::Reduction::gather_gradients() {
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto& gradient = parameters[i].mutable_grad();
    if (gradient.defined() && gradient.is_alias_of(buffer)) continue;
    gradient.defined() ? views[i].copy_(gradient) : views[i].zero_();
    gradient = views[i];
  }
}

void DelayedAllReduce::after_forward(const c10::intrusive_ptr<c10d::ProcessGroup>& group, bool reduces) {
  hook_accumulator();
  reduction_->group = group;
  reduction_->reduces = reduces;
  const torch::NoGradGuard no_grad;
  reduction_->gather_gradients();
}

void DelayedAllReduce::reset() { reduction_->reduces = false; }

}  // namespace lockstep::ddp::detail
