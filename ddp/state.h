// The state is what a wrapped module keeps between steps, put together from its parts. The handles, the scopes and the
// callbacks in autograd share it; callbacks hold it weakly, so a wrapper that is gone is not called back. The sources
// are construction.cpp (making the parts, at first and after failures), step.cpp (forward and backward) and join.cpp.
#pragma once
#include <torch/torch.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/hooks/comm_hooks.h"
#include "ddp/options.h"
#include "ddp/reducer_slot.h"
#include "ddp/replica.h"
#include "ddp/step/accumulators.h"
#include "ddp/step/buffer_sync.h"
#include "ddp/step/join_state.h"
#include "ddp/step/step_counter.h"
#include "ddp/step/step_machine.h"
#include "ddp/step/step_marks.h"
#include "ddp/step/tensor_tree.h"
#include "ddp/training_group.h"

namespace lockstep::ddp::detail {

class DelayedAllReduce;
class LowPrecision;

class State : public std::enable_shared_from_this<State> {
 public:
  State(std::shared_ptr<torch::nn::Module> module, Options options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // These are the parts.
  const Options& options() const { return options_; }
  const Replica& replica() const { return replica_; }
  const TrainingGroup& group() const { return group_; }
  const ReducerSlot& reducer() const { return reducer_; }
  const StepMachine& step() const { return step_; }
  StepCounter& steps() { return steps_; }
  BufferSync& buffer_sync() { return buffer_sync_; }
  StepMarkRecorder& marks() { return marks_; }

  /// Checks options and module, makes replicas equal, makes the Reducer. Collective unless init_sync is off.
  void construct();
  void register_hook(CommHook hook);
  void register_hook(c10d::BuiltinCommHookType hook);
  void register_buffer_hook(BufferCommHook hook, BufferCommHookLocation location);
  void set_static_graph();
  void set_sink_clone(bool clone) { sink_clone_ = clone; }
  at::DDPLoggingData logging_data() const;
  std::vector<Bucket> buckets() const;

  /// Starts afresh after a step that failed; `layout` is as in ReducerSlot::make(). Local.
  void reset(std::vector<std::vector<size_t>> layout = {});
  /// Does the same with another rank's layout of the buckets and count of steps. Called on every rank; local.
  void take_over(std::vector<std::vector<size_t>> layout, int64_t steps);
  /// Whether the next forward will reset(), since the ranks were reconnected.
  bool was_regrouped() const { return group_.was_regrouped(); }
  /// Takes over the count of steps of another state, and whether its ranks were reconnected.
  void set_steps(int64_t steps, bool was_regrouped) {
    steps_.set(steps);
    if (!was_regrouped) group_.follow_regroup();
  }
  void exchange_group(c10::intrusive_ptr<c10d::ProcessGroup> group);
  /// Calls reset() if the ranks were reconnected. Every rank of the group sees the same generations, so all of them do
  /// it in the same forward.
  void follow_regroup();
  /// Makes the count of steps the smallest of any rank after a reset. Collective then, local otherwise.
  void agree_on_steps();
  /// Lets all ranks take parameters and buffers of rank `src`. Collective.
  void broadcast_module_states(int src);
  void restore_full_precision();

  // One forward calls these.
  void before_forward();
  bool changes_inputs() const;
  void change_inputs(const TensorPointers& inputs) const;
  void after_forward(const TensorPointers& outputs);
  void forward_failed();
  /// Whether a BatchNorm in the module was converted, so that forwards synchronise its statistics.
  bool synchronises_batch_norm();

  // Backward calls these.
  /// Takes a gradient that has come to a parameter of the Reducer. Throws StateError if no forward announced it, and
  /// Error if its forward was before a regroup. From any thread.
  void gradient_arrives(size_t parameter);
  /// Throws Error if the last backward did not reduce every gradient, with the names of those without one. Local.
  void check_last_backward() const;
  /// Gives parameters whose values were exchanged (torch::load, set_data) their accumulators back.
  void restore_accumulators() const;
  void restore_accumulator(size_t parameter) const;
  /// Returns the number of ranks by which a sum of gradients is divided in this step.
  int64_t divisor() const;

  // These are for the next forward.
  bool requires_grad_sync() const { return requires_grad_sync_; }
  void require_grad_sync(bool on) { requires_grad_sync_ = on; }

  // These are for join().
  /// Throws ArgumentError if ranks that are out of data can't answer the collectives of this module.
  void check_that_join_can_answer(const JoinOptions& options) const;
  void begin_join(JoinState join);
  /// Lets backward divide by all ranks again.
  void end_join();
  bool is_in_join() const { return join_.has_value(); }
  /// Whether this rank has answered steps of other ranks since its own last forward.
  bool has_answered() const { return answered_ > 0; }
  /// Does the collectives of one forward and backward of the ranks that still train, as zeros. Collective.
  void answer_step();
  /// Lets all ranks take the model of a rank that trained last: one that passes `trained_last`. Collective.
  void take_model_of_last(bool trained_last);

 private:
  bool is_static() const { return options_.static_graph(); }

  // These are in construction.cpp.
  std::string find_problem();
  bool needs_reducer() const;
  void make_reducer(std::vector<std::vector<size_t>> layout = {});

  // These are in step.cpp.
  void prepare_reducer();
  void announce_reduction(const TensorPointers& outputs);
  bool buffers_are_due() const;
  bool buffers_are_due(BufferCommHookLocation location) const;
  void synchronise_buffers();
  void broadcast_buffers(int src);
  void outputs_reached();
  void await_end_of_backward(bool from_outputs);
  void backward_ended(bool from_outputs);
  void reduction_ended();
  void hand_out_detached_views() const;
  std::string unannounced_text(size_t parameter) const;
  std::string missing_gradients_text() const;
  std::vector<std::string> parameters_left_out() const;

  // These are in join.cpp.
  void take_turn();
  bool backward_is_due_before(const State& next) const;
  void notify_join();
  void announce_backward_sync();
  void answer_reduction();
  void answer_used_map();

  Options options_;
  Replica replica_;
  TrainingGroup group_;
  ReducerSlot reducer_;
  Accumulators accumulators_;
  std::shared_ptr<LowPrecision> low_precision_;  // null without mixed_precision
  std::unique_ptr<DelayedAllReduce> delayed_;  // null without delay_all_reduce_named_params
  BufferSync buffer_sync_;
  StepMarkRecorder marks_;

  StepMachine step_;
  StepCounter steps_;
  std::atomic<int> examined_backward_ = -1;  // autograd's number of the last backward that gradient_arrives() examined
  std::vector<int64_t> ready_times_before_;  // of the Reducer, when the last reduction was announced
  bool requires_grad_sync_ = true;
  bool sink_clone_ = true;
  int64_t batch_norm_conversions_ = -1;  // calls of convert_sync_batchnorm at the last look
  bool converts_batch_norm_ = false;  // at the last look

  std::optional<JoinState> join_;
  int64_t answered_ = 0;  // steps of other ranks since this rank's own last forward
};

}  // namespace lockstep::ddp::detail
