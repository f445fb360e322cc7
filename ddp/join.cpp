#include "ddp/distributed_module.h"

#include <cmath>
#include <string>

#include "ddp/state.h"
#include "ddp/sync_batch_norm.h"
#include "protocol/error.h"

namespace lockstep::ddp {

using detail::state_of;

namespace {

// Hooks divide by themselves, and only they know by what.
void warn_of_division_by_hooks(const detail::State& state) {
  if (state.options().mixed_precision() || !state.reducer().has_hook()) return;
  TORCH_WARN_ONCE(
      "join: divide_by_initial_world_size(false) has no effect on a module with a communication hook, which divides "
      "gradients by itself");
}

// Ends a join however the loop ends: later forwards must not notify a join that is over.
class JoinScope {
 public:
  JoinScope(const std::vector<DistributedModule>& nets, const JoinOptions& options) : nets_(nets) {
    const auto turns = std::make_shared<detail::JoinTurns>();
    turns->modules = nets.size();
    size_t index = 0;
    for (const auto& net : nets_) {
      state_of(net)->begin_join({.index = index++,
                                 .turns = turns,
                                 .throw_on_early_termination = options.throw_on_early_termination(),
                                 .divide_by_initial_world_size = options.divide_by_initial_world_size()});
    }
  }
  ~JoinScope() {
    for (const auto& net : nets_) state_of(net)->end_join();
  }
  JoinScope(const JoinScope&) = delete;
  JoinScope& operator=(const JoinScope&) = delete;

 private:
  const std::vector<DistributedModule>& nets_;
};

}  // namespace

void join(const std::vector<DistributedModule>& nets, const std::function<void()>& training_loop,
          const JoinOptions& options) {
  if (nets.empty()) throw ArgumentError("join needs at least one wrapped module");
  const auto& group = state_of(nets[0])->group();
  for (const auto& net : nets) {
    if (net.process_group() != group.get())
      throw ArgumentError("modules that join together must have one process group");
  }
  if (!options.enable() || group.size() == 1) return training_loop();

  for (const auto& net : nets) state_of(net)->check_that_join_can_answer(options);
  for (const auto& net : nets) {
    state_of(net)->follow_regroup();
    state_of(net)->agree_on_steps();  // here, since a rank may run no forward in the loop
    if (!options.divide_by_initial_world_size()) warn_of_division_by_hooks(*state_of(net));
  }
  const JoinScope scope(nets, options);
  training_loop();
  for (const auto& net : nets) {
    if (state_of(net)->is_in_join()) continue;
    throw StateError("join: on rank " + std::to_string(group.rank()) +
                     " a module left the join within its loop: it was reset, or joined again. Catch what fails outside "
                     "of join(), and call join() again");
  }
  bool trained_last = true;  // no other rank still trained when this one came here
  while (group.sum(0) != 0) {
    if (options.throw_on_early_termination()) {
      group.sum(1);
      throw Error("rank " + std::to_string(group.rank()) +
                  " has no more inputs, while other ranks still train (throw_on_early_termination)");
    }
    for (const auto& net : nets) state_of(net)->answer_step();
    trained_last = false;
  }
  for (const auto& net : nets) state_of(net)->take_model_of_last(trained_last);
}

namespace detail {
namespace {

bool trains_sync_batch_norm(torch::nn::Module& module) {
  const bool converted = has_converted_batchnorm(module);
  for (const auto& each : module.modules()) {
    if (!each->is_training()) continue;
    if (each->as<SyncBatchNorm>()) return true;
    if (converted && (each->as<torch::nn::BatchNorm1d>() || each->as<torch::nn::BatchNorm2d>() ||
                      each->as<torch::nn::BatchNorm3d>()))
      return true;
  }
  return false;
}

// The Reducer has no zeros for a sparse gradient that this rank never had.
torch::Tensor zero_gradients(GradBucket& bucket) {
  const auto& gradients = bucket.getBufferRef();
  if (gradients.defined() && !gradients.is_sparse()) return torch::zeros_like(gradients);
  const auto parameter = bucket.getParameters().at(0);
  // It has the form that embeddings give: indices of rows, and no rows.
  auto rows = parameter.sizes().vec();
  rows[0] = 0;
  const auto options = torch::TensorOptions(parameter.device());
  return torch::sparse_coo_tensor(torch::empty({1, 0}, options.dtype(torch::kLong)),
                                  torch::empty(rows, options.dtype(parameter.dtype())), parameter.sizes());
}

}  // namespace

// A rank that is out of data answers the wrapper's own collectives and no others.
void State::check_that_join_can_answer(const JoinOptions& options) const {
  if (delayed_) throw ArgumentError("join can't answer for delay_all_reduce_named_params");
  if (options.throw_on_early_termination()) return;
  if (buffer_sync_.hook() && options_.broadcast_buffers() && !replica_.buffers().empty()) {
    throw ArgumentError(
        "join can't answer for the collectives of a buffer hook (register_buffer_comm_hook). Set "
        "JoinOptions().throw_on_early_termination(true), or broadcast_buffers(false) in the wrapper's options");
  }
  if (trains_sync_batch_norm(*replica_.module())) {
    throw ArgumentError(
        "join can't answer for the collectives of SyncBatchNorm in training. Set "
        "JoinOptions().throw_on_early_termination(true)");
  }
}

void State::begin_join(JoinState join) {
  join_ = std::move(join);
  if (reducer_) reducer_.logger().set_uneven_input_join();
}

void State::end_join() {
  join_.reset();
  // The Reducer keeps the notice of its last forward, and would still divide by the ranks that trained then.
  if (reducer_) reducer_->set_forward_pass_work_handle({}, /*useStaticWorldSize=*/true);
}

void State::take_turn() {
  JoinTurns& turns = *join_->turns;
  const bool backward_is_due = turns.last && turns.last->backward_is_due_before(*this);
  if (backward_is_due && turns.modules == 1) {
    throw StateError(
        "join: a forward came on rank " + std::to_string(group_.rank()) +
        " while the backward of the one before was still to come. A rank that is out of data answers a forward "
        "together with its backward, so every step must run in this order: evaluate after backward, call backward "
        "after each of several forwards (all but the last within no_sync()), and do not leave out the backward of a "
        "batch");
  }
  if (backward_is_due || join_->index != turns.next) {
    throw StateError("join: the forward of module " + std::to_string(join_->index + 1) + " of " +
                     std::to_string(turns.modules) +
                     (backward_is_due ? " came while the backward of another one was still to come"
                                      : " came where that of module " + std::to_string(turns.next + 1) + " was due") +
                     ". A rank that is out of data answers for the modules in the order in which join() got them, "
                     "forward and backward of each before the next one's, so every step must run in this order. Wrap "
                     "modules that can't as one");
  }
  turns.next = (turns.next + 1) % turns.modules;
  turns.last = this;
}

// If its own backward came in part, check_last_backward() reports more.
bool State::backward_is_due_before(const State& next) const {
  const Phase phase = step_.phase();
  return reducer_ && !is_static() && awaits_reduction(phase) && !(&next == this && has_gradients(phase));
}

void State::notify_join() {
  JoinTurns& turns = *join_->turns;
  if (join_->index == 0) {
    turns.training = torch::ones({1}, torch::TensorOptions(replica_.device()));
    turns.notice = group_.all_reduce(turns.training);
    if (join_->throw_on_early_termination && group_.sum(0) != 0) {
      throw Error("another rank than " + std::to_string(group_.rank()) +
                  " has no more inputs, so no rank goes on (throw_on_early_termination)");
    }
  }
  if (turns.notice && reducer_)
    reducer_->set_forward_pass_work_handle(turns.notice, join_->divide_by_initial_world_size);
}

void State::announce_backward_sync() { group_.sum(torch::GradMode::is_enabled() && requires_grad_sync_ ? 1 : 0); }

int64_t State::divisor() const {
  if (!join_ || join_->divide_by_initial_world_size || !join_->turns->notice) return group_.size();
  join_->turns->notice->wait();
  return std::llround(join_->turns->training.item<double>());
}

// The order of the collectives is that of before_forward() and of the Reducer.
void State::answer_step() {
  if (!reducer_) return;
  reducer_.rebuild_buckets();
  if (buffers_are_due()) broadcast_buffers(group_.largest_rank(false));
  const bool reduces = group_.sum(0) != 0;
  buffer_sync_.set_last_forward_was_reduced(reduces);
  if (!reduces) return;
  // The first backward over a static graph finds the parameters that are used, before it reduces, and not yet their
  // order.
  const bool learns_graph = reducer_.learns_graph() && !join_->answered_first_of_static_graph;
  if (learns_graph) {
    answer_used_map();
    join_->answered_first_of_static_graph = true;
  }
  answer_reduction();
  if (options_.find_unused_parameters() && !is_static()) answer_used_map();
  if (!learns_graph) reducer_->push_rebuilt_params_for_all_indices();
  ++answered_;
  steps_.add_step();
  steps_.report();
}

void State::answer_reduction() {
  auto buckets = reducer_->allocate_buckets();
  std::vector<GradFuture> reductions;
  for (auto& bucket : buckets) {
    auto zeros = zero_gradients(bucket);
    bucket.setBuffer(zeros);
    reductions.push_back(reducer_->run_comm_hook(bucket));
  }
  for (const auto& reduction : reductions) reduction->waitAndThrow();
}

// This rank uses no parameter in the backward of the others.
void State::answer_used_map() {
  auto used = torch::zeros_like(reducer_->get_local_used_map_on_device());
  group_.all_reduce(used)->wait();
}

void State::take_model_of_last(bool trained_last) {
  restore_full_precision();  // a last forward without a backward leaves low precision
  broadcast_module_states(group_.largest_rank(trained_last));
  // A Reducer learns a static graph in its first backward. One that was out of data then has not learnt it, so all
  // begin again.
  if (reducer_ && is_static() && group_.sum(join_->answered_first_of_static_graph ? 1 : 0) != 0) reset();
}

}  // namespace detail
}  // namespace lockstep::ddp
