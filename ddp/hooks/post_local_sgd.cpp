#include "ddp/hooks/post_local_sgd.h"

#include <map>
#include <utility>

#include "collectives/dist.h"
#include "ddp/hooks/comm_hooks.h"
#include "protocol/error.h"

namespace lockstep::ddp {

PostLocalSGDState::PostLocalSGDState(PostLocalSGDOptions options) : options_(std::move(options)) {
  if (options_.post_local_gradient_allreduce() && !options_.subgroup()) {
    throw ArgumentError(
        "post_localSGD needs a subgroup to reduce over (dist::new_group, of the ranks of one node, for example), or "
        "post_local_gradient_allreduce(false)");
  }
}

GradFuture PostLocalSGDState::reduce(GradBucket& bucket) {
  if (std::exchange(restarted_, false)) {
    const auto all = detail::group_or_default(options_.process_group());
    iter_ = detail::least_over_ranks(all, iter_, bucket.getBuffer().device());
  }
  const bool global = iter_ < options_.start_localSGD_iter();
  if (bucket.isLast()) ++iter_;
  if (global) return detail::mean_over_ranks(detail::group_or_default(options_.process_group()), bucket.getBuffer());
  if (!options_.post_local_gradient_allreduce()) return detail::completed(bucket.getBuffer());
  return detail::mean_over_ranks(options_.subgroup(), bucket.getBuffer());
}

CommHook post_localSGD_hook(const std::shared_ptr<PostLocalSGDState>& state) {
  return CommHook(
      "post_localSGD_hook", [state](GradBucket& bucket) { return state->reduce(bucket); },
      [state] { state->restart(); });
}

PeriodicModelAverager::PeriodicModelAverager(int64_t period, int64_t warmup_steps,
                                             c10::intrusive_ptr<c10d::ProcessGroup> group)
    : period_(period), warmup_steps_(warmup_steps), group_(std::move(group)) {
  if (period < 1) throw ArgumentError("the period of model averaging must be 1 or more");
  if (warmup_steps < 0) throw ArgumentError("warmup_steps must not be negative");
  if (group_ || dist::is_initialized()) generation_ = dist::get_generation(group_);
}

bool PeriodicModelAverager::average_parameters(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  const auto group = detail::group_or_default(group_);
  if (const int64_t generation = dist::get_generation(group); restarted_ || generation != generation_) {
    const auto device = parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
    step_ = detail::least_over_ranks(group, step_, device);
    generation_ = generation;
    restarted_ = false;
  }
  const bool averages = step_ >= warmup_steps_ && (step_ - warmup_steps_) % period_ == 0;
  if (averages) average(group, parameters);
  ++step_;
  return averages;
}

void PeriodicModelAverager::average(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                    const std::vector<torch::Tensor>& parameters) {
  std::map<torch::ScalarType, std::vector<torch::Tensor>> by_type;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) by_type[parameter.scalar_type()].push_back(parameter);
  }
  for (const auto& [type, same] : by_type) {
    std::vector<torch::Tensor> flattened;
    for (const auto& parameter : same) flattened.push_back(parameter.detach().reshape({-1}));
    const auto flat = torch::cat(flattened);
    detail::mean_over_ranks(group, flat)->waitAndThrow();
    int64_t offset = 0;
    for (const auto& parameter : same) {
      parameter.detach().copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
  }
}

}  // namespace lockstep::ddp
