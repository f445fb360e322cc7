// What a wrapped module keeps between steps. Shared by the handles, the scopes and the callbacks that autograd holds (those only
// weakly: a wrapper that is gone has nothing to call back). Included by the sources of ddp/ alone.
#pragma once
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ddp/hooks/comm_hook.h"
#include "ddp/options.h"
#include "ddp/parameter_check.h"
#include "ddp/tensor_tree.h"

namespace lockstep::ddp::detail {

class DelayedAllReduce;
class LowPrecision;
struct State;
using StepListener = std::function<void()>;

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));

/// What the last forward said about the backward to come.
enum class Announced {
  kNothing,  // none yet, or it has been had
  kLocal,  // gradients stay here (no_sync)
  kReduced,  // the Reducer waits for them
  kNotFound,  // find_unused_parameters had no output to search from: the Reducer waits for none
};

/// Modules that join together. A rank that is out of data answers for one after the other, so that is how they must run.
struct JoinTurns {
  size_t modules = 1;
  size_t next = 0;  // whose forward is due
  const State* last = nullptr;  // whose forward came last
  c10::intrusive_ptr<c10d::Work> notice;  // that this rank still trains: the first module's, in this step
  torch::Tensor training;  // how many ranks do, once the notice is done
};

/// What join() has said about the forward passes within it.
struct JoinState {
  size_t index = 0;  // among the modules that join together; the first speaks for all
  std::shared_ptr<JoinTurns> turns;
  bool throw_on_early_termination = false;
  bool divide_by_initial_world_size = true;
  bool answered_first_of_static_graph = false;  // a backward in which the Reducer of this rank has not learnt the graph
};

struct State : std::enable_shared_from_this<State> {
  std::shared_ptr<torch::nn::Module> module;
  Options options;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int rank = 0;
  int world_size = 1;
  int64_t generation = 0;  // of the group's connections, when the Reducer was made
  torch::Device device = torch::kCPU;

  // The parameters that the Reducer reduces, with their names and whether their gradients are sparse.
  std::vector<torch::Tensor> parameters;
  std::vector<std::string> names;
  std::vector<bool> sparse;
  std::unordered_set<std::string> ignored;
  // Buffers that are kept equal, in the module's order, each once.
  std::vector<std::pair<std::string, torch::Tensor>> buffers;

  std::shared_ptr<c10d::Reducer> reducer;  // null: one rank and no hook, or everything is delayed
  std::shared_ptr<c10d::Logger> logger;
  std::optional<CommHook> comm_hook;
  std::optional<c10d::BuiltinCommHookType> builtin_hook;
  BufferCommHook buffer_hook;
  BufferCommHookLocation buffer_hook_location = BufferCommHookLocation::kPostForward;
  std::shared_ptr<DelayedAllReduce> delayed;
  std::shared_ptr<LowPrecision> low_precision;

  bool require_backward_grad_sync = true;
  bool require_forward_param_sync = true;
  bool static_graph = false;
  bool converts_batch_norm = false;  // convert_sync_batchnorm was had for a part of the module,
  int64_t batch_norm_conversions = -1;  // as far as was known after so many calls of it
  bool graph_known = false;  // static graph: its first backward has been counted, and reduced at its end
  bool counted_locally = false;  // static graph: the Reducer has counted gradients of a backward under no_sync
  bool sink_clone = true;
  bool low_before_forward = false;  // mixed precision: parameters were low when the forward that is under way began
  std::optional<JoinState> join;
  int64_t steps = 0;
  int64_t told_steps = 0;  // of these the listeners know
  bool steps_may_differ = false;  // between ranks, after a step that failed on some of them
  std::vector<std::weak_ptr<const StepListener>> step_listeners;
  int64_t answered = 0;  // steps of other ranks, answered in join() since this rank's own last forward
  bool buffers_written =
      false;  // a forward has run since they were made equal: it may have written them, on each rank its own

  Announced announced = Announced::kNothing;
  std::atomic<bool> backward_runs = false;  // and its end will be noticed
  std::atomic<int> checked_task = -1;  // the backward, by autograd's number, that backward_begins has looked at last
  std::atomic<bool> gradients_arrived = false;  // since they were announced
  // The nodes that add up gradients, with the Reducer's hooks on them. A parameter that is loaded would otherwise get a new one.
  std::vector<Accumulator> accumulators;
  std::vector<std::pair<Accumulator, uintptr_t>> watch_hooks;
  std::vector<int64_t> ready_times_before;  // of the Reducer, when the last backward was announced

  State(std::shared_ptr<torch::nn::Module> module, Options options);
  ~State();

  /// Checks options and module, makes replicas equal, makes the Reducer. Collective unless init_sync is off.
  void construct();
  bool synchronises_batch_norm();
  void make_reducer();
  bool needs_reducer() const;
  /// With mixed precision gradients are of another type than the buckets.
  bool bucket_views() const { return options.gradient_as_bucket_view() && !options.mixed_precision(); }
  void register_hook_with_reducer();
  void reset();
  /// Whether the group was connected anew: then reductions that were under way will never end.
  bool was_regrouped() const;
  /// reset() after that. Every rank of the group sees the same generations, so all start afresh in the same forward.
  void follow_regroup();
  /// After a reset the count of steps is the smallest that a rank has. Collective then, local otherwise.
  void agree_on_steps();
  /// Reducer::rebuild_buckets. Collective when it rebuilds.
  void rebuild_buckets();
  /// By how many ranks a sum of gradients is divided in this step.
  int64_t divisor() const;

  void before_forward();
  void change_inputs(const TensorPointers& inputs) const;
  bool changes_inputs() const;
  void after_forward(const TensorPointers& outputs);
  void forward_failed();

  void broadcast_buffers(int src);
  void broadcast_module_states(int src);
  bool buffers_are_due() const;
  void synchronise_buffers();

  /// Gives parameters whose values were exchanged (torch::load, set_data) their accumulators back.
  void keep_accumulators();
  void keep_accumulator(size_t parameter);
  /// A gradient has come to a parameter. Throws where nothing said that it would.
  void backward_begins(size_t parameter);
  /// A backward has come to the outputs of forward.
  void backward_passes_outputs();
  /// Each synchronised backward once, when it is over.
  void tell_step_listeners();
  void check_last_backward();
  std::vector<std::string> parameters_left_out() const;

  // join()
  void take_turn();
  /// Ends the part that this module takes in a join. Backward divides by all ranks again.
  void leave_join();
  c10::intrusive_ptr<c10d::Work> notify_join();
  void announce_backward_sync();
  /// The largest of the ranks that say `candidate`.
  int common_rank(bool candidate);

 private:
  std::string describe_problem();
  ReplicaDescription describe_replica() const;
  void collect_parameters();
  void collect_buffers();
  void choose_devices();
  void watch_backward();
  std::string not_announced(size_t parameter) const;
  void await_end_of_backward(bool at_outputs);
  void backward_ended(bool at_outputs);
  void reduction_ended();
  void leave_low_precision();
  void pass_through_sink(const TensorPointers& outputs);
  void hand_out_detached_views();
};

}  // namespace lockstep::ddp::detail
