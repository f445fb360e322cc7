// Does what a wrapped module does around forward and within backward. The collectives come in the order of PyTorch's
// class: join's notice, the indices of the rebuilt buckets, buffers, then (in backward) the buckets.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "ddp/comma_list.h"
#include "ddp/delayed_all_reduce.h"
#include "ddp/low_precision.h"
#include "ddp/state.h"
#include "ddp/step/sink.h"
#include "ddp/wrappers.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {

using torch::autograd::Engine;

void State::before_forward() {
  const bool grad = torch::GradMode::is_enabled();
  follow_regroup();
  answered_ = 0;
  if (join_) take_turn();
  if (low_precision_) low_precision_->check_not_exchanged();
  if (grad) restore_accumulators();
  if (grad && requires_grad_sync_) {
    if (reducer_) {
      prepare_reducer();
    } else {
      agree_on_steps();  // here, since the end of a backward without a Reducer is not seen
    }
  }
  if (join_) notify_join();
  // A rank that is out of data does not know whether the others record gradients.
  if (reducer_ && (grad || join_)) reducer_.rebuild_buckets();
  if (buffers_are_due(BufferCommHookLocation::kPreForward)) synchronise_buffers();
  if (join_) announce_backward_sync();
  if (low_precision_) low_precision_->begin_forward(grad);
}

void State::prepare_reducer() {
  check_last_backward();
  // If every gradient came within a nested backward, the end of a static graph's backward has not been seen.
  if (is_static() && has_gradients(step_.phase()) && !join_) steps_.report();
  if (reducer_.has_miscounted()) make_reducer();
  reducer_.logger().set_runtime_stats_and_log();
  reducer_->prepare_for_forward();
}

bool State::changes_inputs() const { return !options_.device_ids().empty() || low_precision_; }

void State::change_inputs(const TensorPointers& inputs) const {
  for (auto* input : inputs) {
    if (!input->defined()) continue;
    if (!options_.device_ids().empty()) *input = input->to(options_.device_ids()[0]);
    if (low_precision_) *input = low_precision_->lower_input(*input);
  }
}

void State::after_forward(const TensorPointers& outputs) {
  if (buffers_are_due(BufferCommHookLocation::kPostForward)) synchronise_buffers();

  buffer_sync_.set_may_differ(true);
  const bool grad = torch::GradMode::is_enabled();
  const bool reduces = grad && requires_grad_sync_;
  buffer_sync_.set_last_forward_was_reduced(reduces);
  if (reduces) {
    marks_.forward_ends(replica_.device());
    announce_reduction(outputs);
  } else if (grad) {
    step_.transition(Event::kForwardLocal);
    reducer_.count_local_forward();
  }
  if (delayed_ && grad) delayed_->after_forward(group_.get(), reduces);
  if (!grad && low_precision_) low_precision_->leave_forward();
}

void State::announce_reduction(const TensorPointers& outputs) {
  steps_.add_step();
  if (!reducer_) {
    step_.transition(Event::kForwardReduced);
    return;
  }
  ready_times_before_ = reducer_->get_backward_stats();
  const bool searches = options_.find_unused_parameters() && !is_static();
  if (searches && std::none_of(outputs.begin(), outputs.end(), [](const auto* each) { return has_graph(*each); })) {
    // Every parameter would count as unused, so the first gradient would reduce them all, too early.
    step_.transition(Event::kForwardUnsearchable);
    return;
  }
  step_.transition(Event::kForwardReduced);
  std::vector<torch::Tensor> found;
  if (searches) {
    for (const auto* output : outputs) found.push_back(*output);
  }
  reducer_->prepare_for_backward(found);
  if (reducer_.learns_graph()) {
    pass_through_sink(outputs, sink_clone_, [weak = weak_from_this()] {
      if (const auto state = weak.lock()) state->outputs_reached();
    });
  } else if (searches) {
    pass_through_sink(outputs, sink_clone_, {});
  }
}

void State::forward_failed() {
  if (low_precision_) low_precision_->leave_forward();
}

bool State::buffers_are_due() const {
  return buffer_sync_.last_forward_was_reduced() && options_.broadcast_buffers() && !replica_.buffers().empty() &&
         group_.size() > 1;
}

bool State::buffers_are_due(BufferCommHookLocation location) const {
  return buffer_sync_.location() == location && buffers_are_due();
}

void State::synchronise_buffers() {
  const torch::NoGradGuard no_grad;
  if (!buffer_sync_.hook()) {
    // In a join rank 0 may be out of data while others go on. Its buffers are old then.
    broadcast_buffers(join_ ? group_.largest_rank(true) : 0);
    return;
  }
  const auto futures = buffer_sync_.hook()(replica_.buffers());
  buffer_sync_.set_may_differ(false);
  if (futures.empty() || !reducer_) return;
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> list(c10::FutureType::create(c10::TensorType::get()));
  for (const auto& future : futures) list.push_back(future);
  reducer_->install_futures(list);
}

void State::broadcast_buffers(int src) {
  replica_.broadcast_buffers(group_.get(), src);
  buffer_sync_.set_may_differ(false);
}

void State::restore_accumulators() const {
  for (size_t i = 0; i < replica_.parameters().size(); ++i) {
    if (!low_precision_ || !low_precision_->is_low(replica_.parameters()[i])) restore_accumulator(i);
  }
}

void State::restore_accumulator(size_t parameter) const {
  accumulators_.restore(parameter, replica_.parameters()[parameter]);
}

void State::gradient_arrives(size_t parameter) {
  // This is done once a backward: the questions below cost more than a gradient of a small parameter.
  const int backward = torch::autograd::get_current_graph_task_id();
  if (examined_backward_.load(std::memory_order_relaxed) == backward) return;
  examined_backward_.store(backward, std::memory_order_relaxed);
  if (!step_.accepts(Event::kGradient)) {
    // If another wrapper of the module announced it, this one takes no part, as c10d's Reducer.
    if (is_announced_by_another(*this, replica_.parameters()[parameter])) return;
    throw StateError(unannounced_text(parameter));
  }
  if (group_.was_regrouped()) {
    throw Error(
        "DistributedDataParallel: since the forward of this backward, the ranks have been connected anew on rank " +
        std::to_string(group_.rank()) +
        ", because one of them failed or was interrupted. Call zero_grad() and forward again");
  }
  if (step_.transition(Event::kGradient).starts_backward()) await_end_of_backward(/*from_outputs=*/false);
}

void State::outputs_reached() {
  if (step_.transition(Event::kOutputs).starts_backward()) await_end_of_backward(/*from_outputs=*/true);
}

void State::await_end_of_backward(bool from_outputs) {
  Engine::get_default_engine().queue_callback([weak = weak_from_this(), from_outputs] {
    if (const auto state = weak.lock()) state->backward_ended(from_outputs);
  });
}

void State::backward_ended(bool from_outputs) {
  if (!is_running(step_.phase())) return;
  marks_.backward_ends(replica_.device());
  if (is_static() && !from_outputs && torch::autograd::get_current_node()) {
    // A backward within the backward (checkpointing) has ended. More gradients may come, and the Reducer does not know.
    step_.transition(Event::kLeftOpen);
    return;
  }
  // autograd::grad, for a penalty on gradients, may have reached no parameter. Then the graph is not learnt from it.
  if (reducer_.learns_graph() && has_gradients(step_.phase())) reducer_.learn_graph();
  // This comes after the Reducer's own end of backward, which may have been queued later than this one.
  Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->reduction_ended();
  });
}

void State::reduction_ended() {
  if (!is_running(step_.phase())) return;
  const bool reached_parameters = has_gradients(step_.phase());
  // It is not finalized when a nested backward (checkpointing) has ended, or gradients are missing, which the next
  // forward reports. The Reducer of a static graph does not know which backward is the outermost.
  const bool reduced = reached_parameters && (!reducer_ || is_static() || reducer_.is_finalized());
  if (!reduced) {
    step_.transition(Event::kLeftOpen);
    return;
  }
  step_.transition(is_static() ? Event::kReducedStatic : Event::kReduced);
  agree_on_steps();  // here, where every rank comes: one rank may run a forward alone
  if (has_bucket_views(options_) && options_.lazy_bucket_allocation()) hand_out_detached_views();
  steps_.report();
}

// Buckets that the Reducer allocates within backward are laid out by code that PlainBucketViews does not reach.
void State::hand_out_detached_views() const {
  for (const auto& parameter : replica_.parameters()) {
    auto& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.layout() == torch::kStrided && gradient.is_view()) gradient = gradient.detach();
  }
}

std::string State::unannounced_text(size_t parameter) const {
  const std::string where = "DistributedDataParallel: on rank " + std::to_string(group_.rank()) +
                            " a backward reached parameter " + replica_.names()[parameter];
  if (step_.phase() == Phase::kNotFound) {
    return where +
           ", while find_unused_parameters counts every parameter as unused, because forward returned no tensor with a "
           "gradient function to search from. If it returns its tensors in a struct, name them in a function "
           "tensors_of (ddp/step/tensor_tree.h); if it leaves them elsewhere, return them, or set static_graph(true) "
           "instead of find_unused_parameters(true)";
  }
  return where +
         ", but no forward of the wrapper announced it, so its gradients would not be reduced and the replicas would "
         "diverge. Either the module was called itself (net->forward(x) where net.forward(x) or net(x) was meant), or "
         "backward ran a second time after one forward. For gradients that are to stay on this rank, run forward "
         "within a net.no_sync() scope";
}

void State::check_last_backward() const {
  if (!reducer_) return;
  if (reducer_.learns_graph() && has_gradients(step_.phase())) {
    throw Error(
        "DistributedDataParallel: the first backward of the static graph on rank " + std::to_string(group_.rank()) +
        " was not reduced: it ended with an exception, or every gradient came within a nested backward (checkpointing) "
        "and forward returned no tensor from which the wrapper could see the end of the outer one. Call net.reset() "
        "and net.zero_grad() on every rank; if forward returns its tensors in a struct, name them in a function "
        "tensors_of (ddp/step/tensor_tree.h)");
  }
  if (!reducer_.is_finalized()) throw Error(missing_gradients_text());
}

std::string State::missing_gradients_text() const {
  const std::string rank = std::to_string(group_.rank());
  const auto left_out = parameters_left_out();
  if (left_out.empty()) {
    return "DistributedDataParallel: the reduction of the last backward on rank " + rank +
           " never ended, although every parameter gave its gradient: it failed, as the error of that backward "
           "reported, or was interrupted. Call net.reset() and net.zero_grad() on every rank. If a rank is lost, train "
           "on without it first: net.update_process_group(dist::new_group(RANKS))";
  }
  const std::string advice =
      options_.find_unused_parameters()
          ? "Although find_unused_parameters is on: either not every output of forward took part in the loss, or "
            "forward returns its tensors in a struct without a tensors_of function (ddp/step/tensor_tree.h)."
          : "If they take no part in the loss, set find_unused_parameters(true) in the options (or name them in "
            "ignored_parameters, or set static_graph(true) if they are always the same).";
  return "DistributedDataParallel: the last backward on rank " + rank + " gave no gradient to " +
         std::to_string(left_out.size()) + " of " + std::to_string(replica_.names().size()) +
         " parameters, so its reduction never ended: " + comma_list(left_out) + ". " + advice +
         " If that backward ended with an exception, or this forward came before it, call net.reset() and "
         "net.zero_grad() on every rank";
}

std::vector<std::string> State::parameters_left_out() const {
  std::vector<std::string> left_out;
  const auto ready_times = reducer_->get_backward_stats();
  for (size_t i = 0; i < replica_.names().size(); ++i) {
    if (i >= ready_times_before_.size() || ready_times[i] == ready_times_before_[i])
      left_out.push_back(replica_.names()[i]);
  }
  return left_out;
}

}  // namespace lockstep::ddp::detail
