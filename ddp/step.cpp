// What a wrapped module does around forward and within backward. The order of the collectives here is the order of PyTorch's
// class: join's notice, the rebuilt buckets' indices, buffers, then (in backward) the buckets.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <stdexcept>

#include "ddp/delayed_all_reduce.h"
#include "ddp/low_precision.h"
#include "ddp/state.h"
#include "ddp/wrappers.h"

namespace lockstep::ddp::detail {
namespace {

using torch::autograd::Engine;
using torch::autograd::variable_list;

struct WeakState : torch::CustomClassHolder {
  std::weak_ptr<State> state;
};

// Outputs go through this node so that backward passes it first. Outputs that the loss does not use get undefined gradients
// instead of zeros: their parameters count as unused. With a static graph it tells of the first backward, whose end it thereby is.
struct Sink : torch::autograd::Function<Sink> {
  static variable_list forward(torch::autograd::AutogradContext* context, at::TensorList outputs,
                               const c10::intrusive_ptr<WeakState>& state, bool clone) {
    context->set_materialize_grads(false);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    if (!clone) return outputs.vec();
    variable_list cloned;
    for (const auto& output : outputs) cloned.push_back(output.clone());
    return cloned;
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["state"].toCapsule();
    const auto state = static_cast<WeakState*>(capsule.get())->state.lock();
    if (state && state->static_graph) state->backward_passes_outputs();
    gradients.resize(gradients.size() + 2);  // for the two arguments that are no tensors
    return gradients;
  }
};

// Nodes are held by shared_ptr, in later LibTorch by intrusive_ptr.
template <class N>
std::weak_ptr<N> weak(const std::shared_ptr<N>& node) {
  return node;
}
template <class N>
c10::weak_intrusive_ptr<N> weak(const c10::intrusive_ptr<N>& node) {
  return c10::weak_intrusive_ptr<N>(node);
}

bool has_graph(const torch::Tensor* tensor) { return tensor->defined() && tensor->grad_fn(); }

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

void State::before_forward() {
  follow_regroup();
  answered = 0;
  if (join) take_turn();
  if (low_precision) low_precision->check_not_exchanged();
  const bool grad = torch::GradMode::is_enabled();
  if (grad) keep_accumulators();
  if (!reducer && grad && require_backward_grad_sync) agree_on_steps();  // the end of such a backward is not seen
  if (reducer && grad && require_backward_grad_sync) {
    check_last_backward();
    // The end of a static graph's backward, where every gradient came within another one, has not been seen.
    if (static_graph && announced == Announced::kReduced && gradients_arrived && !join) tell_step_listeners();
    // The Reducer has taken gradients under no_sync for those of its first step. It is to learn the graph from one step only.
    if (static_graph && !graph_known && counted_locally) make_reducer();
    logger->set_runtime_stats_and_log();
    reducer->prepare_for_forward();
  }
  if (join) {
    const auto work = notify_join();
    if (work && reducer) reducer->set_forward_pass_work_handle(work, join->divide_by_initial_world_size);
  }
  // A rank that is out of data does not know whether the others record gradients.
  if (reducer && (grad || join)) rebuild_buckets();
  if (buffers_are_due() && (!buffer_hook || buffer_hook_location == BufferCommHookLocation::kPreForward))
    synchronise_buffers();
  if (join) announce_backward_sync();
  if (!low_precision) return;
  low_before_forward = low_precision->is_lowered();  // by a forward whose backward is still to come
  low_precision->lower();
  if (grad) low_precision->lower_gradients();
}

void State::keep_accumulators() {
  for (size_t i = 0; i < accumulators.size(); ++i) {
    if (!low_precision || !low_precision->is_low(parameters[i])) keep_accumulator(i);
  }
}

void State::keep_accumulator(size_t parameter) {
  if (parameter >= accumulators.size()) return;
  auto& variable = parameters[parameter];
  if (torch::autograd::impl::try_get_grad_accumulator(variable) != accumulators[parameter])
    torch::autograd::impl::set_grad_accumulator(variable, weak(accumulators[parameter]));
}

bool State::changes_inputs() const { return !options.device_ids().empty() || low_precision; }

void State::change_inputs(const TensorPointers& inputs) const {
  for (auto* input : inputs) {
    if (!input->defined()) continue;
    if (!options.device_ids().empty()) *input = input->to(options.device_ids()[0]);
    if (low_precision) *input = low_precision->lower_input(*input);
  }
}

void State::after_forward(const TensorPointers& outputs) {
  if (buffer_hook && buffer_hook_location == BufferCommHookLocation::kPostForward && buffers_are_due())
    synchronise_buffers();

  buffers_written = true;
  const bool grad = torch::GradMode::is_enabled();
  const bool reduces = grad && require_backward_grad_sync;
  const bool searches = reduces && options.find_unused_parameters() && !static_graph;
  require_forward_param_sync = reduces;
  if (grad) {
    announced = reduces ? Announced::kReduced : Announced::kLocal;
    backward_runs = false;
    gradients_arrived = false;
    counted_locally = counted_locally || !reduces;
  }
  if (reduces) {
    ++steps;
    if (reducer) {
      std::vector<torch::Tensor> found;
      if (searches) {
        for (const auto* output : outputs) found.push_back(*output);
      }
      ready_times_before = reducer->get_backward_stats();
      // Every parameter would count as unused, so the first gradient would reduce them all, too early.
      const bool searches_in_vain = searches && std::none_of(outputs.begin(), outputs.end(), has_graph);
      if (searches_in_vain) {
        announced = Announced::kNotFound;
      } else {
        reducer->prepare_for_backward(found);
      }
    }
  }
  if (reducer && (searches || (reduces && static_graph && !graph_known))) pass_through_sink(outputs);
  if (delayed && grad) delayed->after_forward(group, reduces);
  if (!grad) leave_low_precision();
}

void State::forward_failed() { leave_low_precision(); }

void State::leave_low_precision() {
  if (low_precision && !low_before_forward) low_precision->restore();
}

void State::pass_through_sink(const TensorPointers& outputs) {
  // A tensor without a gradient function must stay the object that it is.
  variable_list through;
  for (const auto* output : outputs) {
    if (has_graph(output)) through.push_back(*output);
  }
  if (through.empty()) return;
  auto holder = c10::make_intrusive<WeakState>();
  holder->state = weak_from_this();
  const auto passed = Sink::apply(at::TensorList(through), holder, sink_clone);
  size_t next = 0;
  for (auto* output : outputs) {
    if (has_graph(output)) *output = passed[next++];
  }
}

bool State::buffers_are_due() const {
  return require_forward_param_sync && options.broadcast_buffers() && !buffers.empty() && world_size > 1;
}

void State::synchronise_buffers() {
  const torch::NoGradGuard no_grad;
  if (!buffer_hook) {
    // Rank 0 may be out of data while others go on, then its buffers are old.
    broadcast_buffers(join ? common_rank(true) : 0);
    return;
  }
  const auto futures = buffer_hook(buffers);
  buffers_written = false;
  if (futures.empty() || !reducer) return;
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> list(c10::FutureType::create(c10::TensorType::get()));
  for (const auto& future : futures) list.push_back(future);
  reducer->install_futures(list);
}

// Any one parameter may be the only one that takes part. While it is in low precision LowPrecision has the hooks.
void State::watch_backward() {
  if (!watch_hooks.empty()) return;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
    const auto key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [weak = weak_from_this(), i](const variable_list& outputs, const variable_list&) {
          if (const auto state = weak.lock()) state->backward_begins(i);
          return outputs;
        }));
    watch_hooks.emplace_back(std::move(accumulator), key);
  }
}

void State::backward_begins(size_t parameter) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (checked_task.load(std::memory_order_relaxed) == task) return;
  checked_task.store(task, std::memory_order_relaxed);
  if (announced != Announced::kReduced && announced != Announced::kLocal) {
    // As c10d's Reducer, a wrapper that was not asked has no say where another one of the module was.
    if (is_announced_by_another(*this, parameters[parameter])) return;
    throw std::runtime_error(not_announced(parameter));
  }
  if (was_regrouped()) {
    throw std::runtime_error(
        "DistributedDataParallel: since the forward that this backward belongs to, the ranks have been connected anew "
        "on rank " +
        std::to_string(rank) + ", because one of them failed or was interrupted. Call zero_grad() and forward again");
  }
  gradients_arrived = true;
  await_end_of_backward(/*at_outputs=*/false);
}

std::string State::not_announced(size_t parameter) const {
  const std::string where =
      "DistributedDataParallel: on rank " + std::to_string(rank) + " a backward reached parameter " + names[parameter];
  if (announced == Announced::kNotFound) {
    return where +
           ", while find_unused_parameters counts every parameter as unused, because forward returned no tensor with a "
           "gradient function to search from. If it returns its tensors in a struct, name them in a function "
           "tensors_of (ddp/tensor_tree.h); if it leaves them elsewhere, return them, or say static_graph(true) in the "
           "place of find_unused_parameters(true)";
  }
  return where +
         " that no forward of the wrapper came before, so its gradients would not be reduced and the replicas would "
         "part. Either the module was called itself (net->forward(x) where net.forward(x) or net(x) was meant), or "
         "backward ran a second time after one forward. For gradients that are to stay on this rank, run forward "
         "within a net.no_sync() scope";
}

void State::backward_passes_outputs() { await_end_of_backward(/*at_outputs=*/true); }

void State::await_end_of_backward(bool at_outputs) {
  if (backward_runs.exchange(true)) return;
  Engine::get_default_engine().queue_callback([weak = weak_from_this(), at_outputs] {
    if (const auto state = weak.lock()) state->backward_ended(at_outputs);
  });
}

void State::backward_ended(bool at_outputs) {
  if (static_graph && !at_outputs && torch::autograd::get_current_node()) {
    // A backward within the backward (checkpointing) has ended: more gradients may come, and the Reducer can't tell.
    backward_runs = false;
    return;
  }
  // Gradients may also have been asked for by autograd::grad, for a penalty on them, and reached no parameter.
  if (reducer && static_graph && !graph_known && announced == Announced::kReduced && gradients_arrived) {
    reducer->delay_all_reduce();
    graph_known = true;
  }
  // Behind the Reducer's own end of backward, which may have been queued later than this one.
  Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->reduction_ended();
  });
}

void State::reduction_ended() {
  backward_runs = false;
  if (announced != Announced::kReduced || !gradients_arrived) return;
  if (reducer && !static_graph) {
    try {
      reducer->check_finalized();
    } catch (const c10::Error&) {
      return;  // a backward within the backward (checkpointing) has ended; or gradients are missing, as the next forward will say
    }
  }
  // With a static graph backward may nest, and which one is the outermost is not always to be seen.
  if (!static_graph) announced = Announced::kNothing;
  gradients_arrived = false;
  agree_on_steps();  // here, where every rank comes: a forward may be one rank's alone
  if (bucket_views() && options.lazy_bucket_allocation()) hand_out_detached_views();
  tell_step_listeners();
}

void State::tell_step_listeners() {
  if (told_steps == steps) return;
  told_steps = steps;
  std::erase_if(step_listeners, [](const auto& each) { return each.expired(); });
  for (const auto& each : std::vector(step_listeners))
    if (const auto listener = each.lock()) (*listener)();
}

// Buckets that the Reducer allocates within backward are laid out by code that PlainBucketViews does not reach.
void State::hand_out_detached_views() {
  for (const auto& parameter : parameters) {
    auto& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.layout() == torch::kStrided && gradient.is_view()) gradient = gradient.detach();
  }
}

std::vector<std::string> State::parameters_left_out() const {
  std::vector<std::string> left_out;
  const auto ready_times = reducer->get_backward_stats();
  for (size_t i = 0; i < names.size(); ++i) {
    if (i >= ready_times_before.size() || ready_times[i] == ready_times_before[i]) left_out.push_back(names[i]);
  }
  return left_out;
}

void State::check_last_backward() {
  if (!reducer) return;
  if (static_graph && !graph_known && announced == Announced::kReduced && gradients_arrived) {
    throw std::runtime_error(
        "DistributedDataParallel: the first backward of the static graph on rank " + std::to_string(rank) +
        " was not reduced: it ended with an exception, or every gradient came within a backward of its own "
        "(checkpointing) and no output of forward was at hand to tell its end. Call net.reset() and net.zero_grad() on "
        "every rank; if forward returns its tensors in a struct, name them in a function tensors_of "
        "(ddp/tensor_tree.h)");
  }
  try {
    reducer->check_finalized();
  } catch (const c10::Error&) {
    const auto left_out = parameters_left_out();
    if (left_out.empty()) {
      throw std::runtime_error(
          "DistributedDataParallel: the reduction of the last backward on rank " + std::to_string(rank) +
          " never ended, although every parameter gave its gradient: it failed, as that backward's error said, or was "
          "broken off. Call net.reset() and net.zero_grad() on every rank. If a rank is lost, train on without it "
          "first: "
          "net.update_process_group(dist::new_group(RANKS))");
    }
    const std::string advice = options.find_unused_parameters()
                                   ? "Although find_unused_parameters is on: either not every output of forward took "
                                     "part in the loss, or forward returns its "
                                     "tensors in a struct without a tensors_of function (ddp/tensor_tree.h)."
                                   : "If they take no part in the loss, say find_unused_parameters(true) in the "
                                     "options (or name them in ignored_parameters, or "
                                     "static_graph(true) if they are always the same).";
    throw std::runtime_error(
        "DistributedDataParallel: the last backward on rank " + std::to_string(rank) + " gave no gradient to " +
        std::to_string(left_out.size()) + " of " + std::to_string(names.size()) +
        " parameters, so its reduction never ended: " + list_of(left_out) + ". " + advice +
        " If that backward ended with an exception, or this forward came before it, call net.reset() and "
        "net.zero_grad() on every rank");
  }
}

}  // namespace lockstep::ddp::detail
