#include "ddp/low_precision.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <utility>

#include "ddp/state.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {

using torch::autograd::variable_list;

namespace {
void cast_gradient(const torch::Tensor& variable, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  auto& gradient = variable.mutable_grad();
  if (gradient.defined() && gradient.scalar_type() != type) gradient = gradient.to(type);
}
}  // namespace

std::shared_ptr<LowPrecision> LowPrecision::install(State& state) {
  auto self = std::make_shared<LowPrecision>();
  self->state_ = &state;
  self->precision_ = *state.options().mixed_precision();
  if (!self->precision_.reduce_dtype()) self->precision_.reduce_dtype(self->precision_.param_dtype());

  const torch::NoGradGuard no_grad;
  std::unordered_map<const void*, size_t> indices;
  const Replica& replica = state.replica();
  for (size_t i = 0; i < replica.parameters().size(); ++i) indices[replica.parameters()[i].unsafeGetTensorImpl()] = i;
  for (const auto& item : replica.module()->named_parameters()) {
    auto variable = item.value();
    const void* key = variable.unsafeGetTensorImpl();
    if (replica.is_ignored(item.key()) || !variable.is_floating_point() || self->index_of_.count(key)) continue;
    self->index_of_[key] = self->parameters_.size();
    Parameter parameter;
    parameter.variable = variable;
    if (const auto index = indices.find(key); index != indices.end()) parameter.reducer_index = index->second;
    self->parameters_.push_back(std::move(parameter));
  }
  if (self->precision_.buffer_dtype()) {
    for (const auto& [name, buffer] : replica.buffers()) {
      if (buffer.is_floating_point()) buffer.set_data(buffer.to(*self->precision_.buffer_dtype()));
    }
  }
  return self;
}

CommHook LowPrecision::hook() {
  return CommHook("mixed_precision", [weak = weak_from_this()](GradBucket& bucket) {
    const auto self = weak.lock();
    if (!self) throw StateError("the wrapper of this bucket is gone. Keep it until backward has ended");
    return self->reduce(bucket);
  });
}

void LowPrecision::begin_forward(bool grad) {
  was_lowered_ = lowered_;
  lower();
  if (grad) lower_gradients();
}

void LowPrecision::leave_forward() {
  if (!was_lowered_) restore();
}

void LowPrecision::lower() {
  if (!precision_.param_dtype()) return;
  const torch::NoGradGuard no_grad;
  restore_queued_ = false;
  lowered_ = true;
  for (auto& parameter : parameters_) {
    auto& variable = parameter.variable;
    // A parameter of param_dtype has the Reducer's own hook on its accumulator. One that is low already waits for the
    // backward of an earlier forward, over the accumulator that the graph of this forward gets, too.
    if (parameter.full.defined() || variable.scalar_type() == *precision_.param_dtype()) continue;
    parameter.full = variable.variable_data();
    parameter.low = parameter.full.to(*precision_.param_dtype());
    variable.set_data(parameter.low);
    if (!parameter.reducer_index) continue;
    // A change of type gives the variable another accumulator, without the Reducer's own hook. The hook here stays on
    // it: backward may pass it at any time.
    parameter.accumulator = torch::autograd::impl::grad_accumulator(variable);
    parameter.accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [weak = weak_from_this(), index = *parameter.reducer_index](const variable_list& outputs,
                                                                    const variable_list&) {
          if (const auto self = weak.lock()) self->gradient_arrived(index);
          return outputs;
        }));
  }
}

void LowPrecision::lower_gradients() {
  if (!precision_.param_dtype()) return;
  for (auto& parameter : parameters_) cast_gradient(parameter.variable, *precision_.param_dtype());
}

bool LowPrecision::is_low(const torch::Tensor& variable) const {
  const auto found = index_of_.find(variable.unsafeGetTensorImpl());
  return found != index_of_.end() && parameters_[found->second].full.defined();
}

void LowPrecision::gradient_arrived(size_t reducer_index) {
  state_->gradient_arrives(reducer_index);
  if (!restore_queued_) {
    restore_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->backward_ended();
    });
  }
  // Parameters may have been restored since forward, with a gradient in full precision.
  if (awaits_reduction(state_->step().phase()))
    cast_gradient(state_->replica().parameters()[reducer_index], *precision_.param_dtype());
  state_->reducer()->autograd_hook(reducer_index);
}

void LowPrecision::backward_ended() {
  restore_queued_ = false;
  restore();
  for (auto& parameter : parameters_) cast_gradient(parameter.variable, parameter.variable.scalar_type());
}

void LowPrecision::restore(Parameter& parameter) {
  auto& variable = parameter.variable;
  if (parameter.full.defined()) {
    const torch::NoGradGuard no_grad;
    exchanged_ = exchanged_ || !variable.is_alias_of(parameter.low);
    variable.set_data(parameter.full);
    parameter.accumulator = {};
    parameter.full = parameter.low = torch::Tensor();
    if (parameter.reducer_index) state_->restore_accumulator(*parameter.reducer_index);
  }
  cast_gradient(variable, variable.scalar_type());
}

void LowPrecision::restore() {
  if (!lowered_) return;
  lowered_ = false;
  for (auto& parameter : parameters_) restore(parameter);
}

void LowPrecision::check_not_exchanged() {
  const bool now = std::any_of(parameters_.begin(), parameters_.end(), [](const auto& parameter) {
    return parameter.full.defined() && !parameter.variable.is_alias_of(parameter.low);
  });
  if (now) restore();
  if (!std::exchange(exchanged_, false)) return;
  throw Error(
      "DistributedDataParallel: values that were loaded into the bare module while its parameters were in low "
      "precision, after a forward that no backward followed, are lost. Load into the wrapper (torch::load(net, file)), "
      "or call net.restore_full_precision() first");
}

torch::Tensor LowPrecision::lower_input(const torch::Tensor& input) const {
  return precision_.param_dtype() && input.is_floating_point() ? input.to(*precision_.param_dtype()) : input;
}

GradFuture LowPrecision::reduce(GradBucket& bucket) {
  const torch::NoGradGuard no_grad;
  auto buffer = bucket.getBuffer();
  auto sent = precision_.reduce_dtype() ? buffer.to(*precision_.reduce_dtype()) : buffer;
  sent.div_(state_->divisor());
  // The gradients of this bucket are complete, so backward does not need the low-precision values any more, and the
  // Reducer writes its result into gradients of full precision.
  for (const auto& variable : bucket.getParameters())
    restore(parameters_[index_of_.at(variable.unsafeGetTensorImpl())]);
  // The Reducer makes a gradient that this rank does not have, in the type of what it gets from here.
  std::optional<torch::ScalarType> full;
  for (const auto& variable : bucket.getParameters()) {
    if (!variable.grad().defined()) full = variable.scalar_type();
  }
  std::vector<torch::Tensor> tensors{sent};
  return state_->group().get()->allreduce(tensors)->getFuture()->then(
      [full](c10::ivalue::Future& done) {
        const torch::NoGradGuard guard;
        const auto reduced = done.value().toTensorVector()[0];  // not rounded to the type of the bucket again
        return c10::IValue(full ? reduced.to(*full) : reduced);
      },
      c10::TensorType::get());
}

}  // namespace lockstep::ddp::detail
