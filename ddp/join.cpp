#include "ddp/join.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "ddp/low_precision.h"
#include "ddp/state.h"
#include "ddp/sync_batch_norm.h"

namespace lockstep::ddp {

using detail::JoinState;
using detail::JoinTurns;
using detail::State;

namespace {

c10::intrusive_ptr<c10d::Work> all_reduce(const State& state, torch::Tensor& tensor,
                                          c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  std::vector<torch::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return state.group->allreduce(tensors, options);
}

// What a rank that trains says with a one, a rank that has joined says with a zero. The sum: how many still train.
double sum_over_ranks(const State& state, double mine) {
  auto sum = torch::full({1}, mine, torch::TensorOptions(state.device));
  all_reduce(state, sum)->wait();
  return sum.item<double>();
}

// In the backward of others this rank uses no parameter.
void answer_used_map(const State& state) {
  auto used = torch::zeros_like(state.reducer->get_local_used_map_on_device());
  all_reduce(state, used)->wait();
}

// The Reducer's own zeros do not exist for a sparse gradient of which this rank has had none yet.
torch::Tensor zero_gradients(GradBucket& bucket) {
  const auto& gradients = bucket.getBufferRef();
  if (gradients.defined() && !gradients.is_sparse()) return torch::zeros_like(gradients);
  const auto parameter = bucket.getParameters().at(0);
  // As embeddings have them: indices of rows, and no rows.
  auto rows = parameter.sizes().vec();
  rows[0] = 0;
  const auto options = torch::TensorOptions(parameter.device());
  return torch::sparse_coo_tensor(torch::empty({1, 0}, options.dtype(torch::kLong)),
                                  torch::empty(rows, options.dtype(parameter.dtype())), parameter.sizes());
}

// The collectives of one forward and backward of the ranks that still train, with nothing to contribute. The order is that of
// State::before_forward and of the Reducer.
void answer_one_step(State& state) {
  if (!state.reducer) return;
  state.rebuild_buckets();
  if (state.buffers_are_due()) state.broadcast_buffers(state.common_rank(false));
  const bool reduces = sum_over_ranks(state, 0) != 0;
  state.require_forward_param_sync = reduces;
  if (!reduces) return;
  // The first backward over a static graph tells which parameters are used, before it reduces, and not yet their order.
  const bool learns_graph = state.static_graph && !state.graph_known && !state.join->answered_first_of_static_graph;
  if (learns_graph) {
    answer_used_map(state);
    state.join->answered_first_of_static_graph = true;
  }
  auto buckets = state.reducer->get_grad_buckets(/*return_zero_tensors=*/false);
  std::vector<GradFuture> reductions;
  for (auto& bucket : buckets) {
    auto zeros = zero_gradients(bucket);
    bucket.setBuffer(zeros);
    reductions.push_back(state.reducer->run_comm_hook(bucket));
  }
  for (const auto& reduction : reductions) {
    reduction->waitAndThrow();
  }
  if (state.options.find_unused_parameters() && !state.static_graph) answer_used_map(state);
  if (!learns_graph) state.reducer->push_rebuilt_params_for_all_indices();
  ++state.answered;
  ++state.steps;
  state.tell_step_listeners();
}

bool trains_sync_batch_norm(torch::nn::Module& module) {
  const bool converted = detail::has_converted_batchnorm(module);
  for (const auto& each : module.modules()) {
    if (!each->is_training()) continue;
    if (each->as<SyncBatchNorm>()) return true;
    if (converted && (each->as<torch::nn::BatchNorm1d>() || each->as<torch::nn::BatchNorm2d>() ||
                      each->as<torch::nn::BatchNorm3d>()))
      return true;
  }
  return false;
}

// A rank that is out of data answers the wrapper's own collectives and no others.
void check_that_join_can_answer(State& state, const JoinOptions& options) {
  if (state.delayed) throw std::invalid_argument("join can't answer for delay_all_reduce_named_params");
  if (options.throw_on_early_termination()) return;
  if (state.buffer_hook && state.options.broadcast_buffers() && !state.buffers.empty()) {
    throw std::invalid_argument(
        "join can't answer for the collectives of a buffer hook (register_buffer_comm_hook). Say "
        "JoinOptions().throw_on_early_termination(true), or broadcast_buffers(false) in the wrapper's options");
  }
  if (trains_sync_batch_norm(*state.module)) {
    throw std::invalid_argument(
        "join can't answer for the collectives of SyncBatchNorm in training. Say "
        "JoinOptions().throw_on_early_termination(true)");
  }
}

// Hooks divide by themselves, and no rank but theirs knows by what.
void warn_of_division_by_hooks(const State& state) {
  if (state.low_precision || !(state.comm_hook || state.builtin_hook)) return;
  TORCH_WARN_ONCE(
      "join: divide_by_initial_world_size(false) has no effect on a module with a communication hook, which divides "
      "gradients by itself");
}

// Whatever way the loop ends, later forwards are not to notify a join that is over.
class Scope {
 public:
  Scope(const std::vector<DistributedModule>& nets, const JoinOptions& options) : nets_(nets) {
    const auto turns = std::make_shared<JoinTurns>(JoinTurns{.modules = nets.size()});
    size_t index = 0;
    for (const auto& net : nets_) {
      net.state()->join =
          JoinState{index++, turns, options.throw_on_early_termination(), options.divide_by_initial_world_size()};
      if (net.state()->logger) net.state()->logger->set_uneven_input_join();
    }
  }
  ~Scope() {
    for (const auto& net : nets_) net.state()->leave_join();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const std::vector<DistributedModule>& nets_;
};

}  // namespace

void join(const std::vector<DistributedModule>& nets, const std::function<void()>& training_loop,
          const JoinOptions& options) {
  if (nets.empty()) throw std::invalid_argument("join needs at least one wrapped module");
  const State& first = *nets[0].state();
  for (const auto& net : nets) {
    if (net.process_group() != first.group)
      throw std::invalid_argument("modules that join together must have one process group");
  }
  if (!options.enable() || first.world_size == 1) return training_loop();

  for (const auto& net : nets) check_that_join_can_answer(*net.state(), options);
  for (const auto& net : nets) {
    State& state = *net.state();
    state.follow_regroup();
    state.agree_on_steps();  // in the loop not every rank may come to a forward
    if (!options.divide_by_initial_world_size()) warn_of_division_by_hooks(state);
  }
  const Scope scope(nets, options);
  training_loop();
  for (const auto& net : nets) {
    if (net.state()->join) continue;
    throw std::runtime_error(
        "join: on rank " + std::to_string(first.rank) +
        " a module left the join within its loop: it was reset, or joined again. Catch what fails outside of "
        "join(), and call join() anew");
  }
  bool last = true;  // nobody was still training when this rank came here
  while (sum_over_ranks(first, 0) != 0) {
    if (options.throw_on_early_termination()) {
      sum_over_ranks(first, 1);
      throw std::runtime_error("rank " + std::to_string(first.rank) +
                               " has no more inputs, while other ranks still train (throw_on_early_termination)");
    }
    for (const auto& net : nets) answer_one_step(*net.state());
    last = false;
  }
  for (const auto& net : nets) {
    State& state = *net.state();
    if (state.low_precision) state.low_precision->restore();  // the last forward may have had no backward
    state.broadcast_module_states(state.common_rank(last));
    // A Reducer learns a static graph in its first backward, and one that was out of data then has not. All begin once more.
    if (state.reducer && state.static_graph &&
        sum_over_ranks(state, state.join->answered_first_of_static_graph ? 1 : 0) != 0)
      state.reset();
  }
}

void State::leave_join() {
  join.reset();
  // The Reducer keeps the notice of its last forward, and would go on dividing by the ranks that trained then.
  if (reducer) reducer->set_forward_pass_work_handle({}, /*useStaticWorldSize=*/true);
}

int64_t State::divisor() const {
  if (!join || join->divide_by_initial_world_size || !join->turns->notice) return world_size;
  join->turns->notice->wait();
  return std::llround(join->turns->training.item<double>());
}

void State::take_turn() {
  JoinTurns& turns = *join->turns;
  // Where this module's own backward came in part, check_last_backward says more.
  const bool open = turns.last && turns.last->reducer && !turns.last->static_graph &&
                    turns.last->announced == Announced::kReduced &&
                    (turns.last != this || !turns.last->gradients_arrived);
  if (open && turns.modules == 1) {
    throw std::logic_error(
        "join: a forward came on rank " + std::to_string(rank) +
        " while the backward of the one before was still to come. A rank that is out of data answers a forward "
        "together "
        "with its backward, so every step must run so: evaluate after backward, call backward after each of several "
        "forwards (all but the last within no_sync()), and do not leave out the backward of a batch");
  }
  if (open || join->index != turns.next) {
    throw std::logic_error("join: the forward of module " + std::to_string(join->index + 1) + " of " +
                           std::to_string(turns.modules) +
                           (open ? " came while the backward of another one was still to come"
                                 : " came where that of module " + std::to_string(turns.next + 1) + " was due") +
                           ". A rank that is out of data answers for the modules in the order in which join() was "
                           "given them, forward and backward of "
                           "each before the next one's, so every step must run so. Modules that work hand in hand are "
                           "better wrapped as one");
  }
  turns.next = (turns.next + 1) % turns.modules;
  turns.last = this;
}

c10::intrusive_ptr<c10d::Work> State::notify_join() {
  auto& notice = join->turns->notice;
  if (join->index > 0) return notice;
  auto& training = join->turns->training;
  training = torch::ones({1}, torch::TensorOptions(device));
  notice = all_reduce(*this, training);
  if (join->throw_on_early_termination && sum_over_ranks(*this, 0) != 0) {
    throw std::runtime_error("another rank than " + std::to_string(rank) +
                             " has no more inputs, so no rank goes on (throw_on_early_termination)");
  }
  return notice;
}

void State::announce_backward_sync() {
  const bool reduces = torch::GradMode::is_enabled() && require_backward_grad_sync;
  auto syncs = torch::full({1}, reduces ? 1.0 : 0.0, torch::TensorOptions(device));
  all_reduce(*this, syncs)->wait();
}

int State::common_rank(bool candidate) {
  auto chosen = torch::full({1}, candidate ? rank : -1, torch::TensorOptions(device).dtype(torch::kLong));
  all_reduce(*this, chosen, c10d::ReduceOp::MAX)->wait();
  return static_cast<int>(chosen.item<int64_t>());
}

}  // namespace lockstep::ddp
