// What DistributedDataParallel is without the type of its module: everything but forward. Functions that take any wrapped
// module (inspectors, join, a trainer) take this. A value of it is a handle: copies share one wrapped module.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/hooks/comm_hook.h"
#include "ddp/options.h"
#include "ddp/tensor_tree.h"

namespace lockstep::ddp {

namespace detail {
struct State;
class ForwardPass;
class SyncBatchNormScope;
}  // namespace detail

/// One bucket of gradients, in the order of reduction.
struct Bucket {
  size_t index;
  /// Names and places of its parameters, in the bucket's order.
  std::vector<std::string> parameters;
  std::vector<size_t> parameter_indices;
  int64_t bytes;
};

/// While it lives, backward adds up gradients on this rank only. Nests; on its end, also by an exception, what was before is back.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(std::shared_ptr<detail::State> state);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<detail::State> state_;
  bool before_;
};

class DistributedModule {
 public:
  /// The wrapped module; its parameters and buffers under their own names (no prefix). One that is shared is listed once, under its
  /// first name. LibTorch's own lists have it under each, and an optimizer made from those steps it twice.
  const std::shared_ptr<torch::nn::Module>& module() const;
  std::vector<torch::Tensor> parameters() const;
  torch::OrderedDict<std::string, torch::Tensor> named_parameters() const;
  torch::OrderedDict<std::string, torch::Tensor> named_buffers() const;
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool is_training() const;

  /// Forgets the gradients, or writes zeros into them. Works with gradient_as_bucket_view, too. Local.
  void zero_grad(bool set_to_none = true) const;

  /// Forward and backward within the scope stay on this rank: `{ auto scope = net.no_sync(); net(x).sum().backward(); }`.
  /// What counts is where forward runs: a scope around backward alone changes nothing, as in PyTorch.
  NoSync no_sync() const;
  /// Whether the next forward announces a synchronised backward. For accumulation loops that set it per micro-step.
  bool require_backward_grad_sync() const;
  void require_backward_grad_sync(bool on) const;

  /// Runs `training_loop`, in which ranks may have different numbers of batches: a rank that is through with its own answers
  /// the collectives of the others until all are, then all take the model of a rank that trained last. Collective. An exception
  /// out of the loop passes through at once. With throw_on_early_termination, std::runtime_error on every rank.
  void join(const std::function<void()>& training_loop, const JoinOptions& options = {}) const;

  /// Lets `hook` reduce the gradients. Once per wrapper, before the first backward, on every rank.
  void register_comm_hook(CommHook hook) const;
  /// One of c10d's own hooks: ALLREDUCE or FP16_COMPRESS.
  void register_builtin_comm_hook(c10d::BuiltinCommHookType hook) const;
  /// Lets `hook` synchronise the buffers.
  void register_buffer_comm_hook(BufferCommHook hook,
                                 BufferCommHookLocation location = BufferCommHookLocation::kPostForward) const;

  /// Says that the graph is the same in every step (Options::static_graph does it at construction). Before the first forward.
  void set_static_graph() const;
  /// For find_unused_parameters and static_graph outputs are cloned by default, so that they can be changed in place.
  void set_ddp_sink_clone(bool clone) const;
  /// c10d's own record of this wrapper: construction, buckets, average times of the steps that were sampled.
  at::DDPLoggingData get_ddp_logging_data() const;
  at::DDPLoggingData logging_data() const { return get_ddp_logging_data(); }
  /// Times are taken in the first 10 steps and in one of `sample_rate` from there on.
  void set_ddp_runtime_logging_sample_rate(int sample_rate) const;

  /// The buckets as they are now, in the order of reduction. They change once, before the second synchronised forward.
  std::vector<Bucket> buckets() const;
  /// Names of the parameters that are reduced, by their index in the Reducer.
  const std::vector<std::string>& reduced_parameter_names() const;
  /// Synchronised forwards so far: the number of the step that is under way or was last. After reset(), or when the ranks were
  /// connected anew, all go on with the smallest count of any from the end of their next synchronised backward on: a step that
  /// failed on some ranks is not counted.
  int64_t steps() const;
  /// For tools that run steps and take them back: the count is `steps` again. Local.
  void set_steps(int64_t steps) const;
  /// Calls `listener` after each synchronised backward, on the thread that runs backward, as long as what is returned lives. In
  /// join() also for each one that this rank answers for others, so that all ranks are told equally often.
  std::shared_ptr<const void> on_step(std::function<void()> listener) const;
  /// Whether the last forward that recorded gradients ran under no_sync, so that its gradients stay on this rank.
  bool last_forward_was_local() const;
  /// Whether this rank has answered steps of other ranks in join() since its own last forward: its gradients are old.
  bool is_out_of_data() const;
  /// The same while join() still runs: its parameters are old, too, until all take the model of a rank that trained last.
  bool is_behind() const;
  /// Whether a forward has run since the buffers were made equal. With broadcast_buffers they differ until the next forward then,
  /// where it writes them: each rank sees batches of its own.
  bool buffers_may_differ() const;
  /// The wrapper that lives around `module`, if there is one.
  static std::optional<DistributedModule> around(const torch::nn::Module& module);
  const Options& options() const;
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;
  torch::Device device() const;
  /// Null for one rank without a hook: then there is nothing to reduce.
  std::shared_ptr<c10d::Reducer> reducer() const;

  /// All ranks take parameters and buffers of rank `src` of the group. Collective. After loading on one rank, say.
  void sync_module_states(int src = 0) const;
  /// Throws when the last backward did not reduce every gradient, with the names of those it left out. Local.
  void check_reducer_finalized() const;
  /// Starts afresh after a step that failed (an exception in forward or backward): new Reducer, same hooks. Gradients are left as
  /// they are: call zero_grad(). Call it on every rank; local. After dist::regroup, which a session does by itself before the cell
  /// that follows a failed one, the next forward does so.
  void reset() const;
  /// Goes on with other ranks: the same as reset(), with reductions over `group`. Hooks keep the group they were made with.
  void update_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group) const;

  /// With mixed_precision: a forward that no backward followed has left parameters in low precision; this makes them full. Saving,
  /// loading and synchronising the wrapper, and its next forward, begin with it. Local.
  void restore_full_precision() const;

  const std::shared_ptr<detail::State>& state() const { return state_; }

  // A handle: moved from, it is still one.
  DistributedModule(const DistributedModule&) = default;
  DistributedModule& operator=(const DistributedModule&) = default;

 protected:
  DistributedModule(std::shared_ptr<torch::nn::Module> module, Options options);

 private:
  explicit DistributedModule(std::shared_ptr<detail::State> state) : state_(std::move(state)) {}

  std::shared_ptr<detail::State> state_;
};

std::ostream& operator<<(std::ostream& out, const DistributedModule& net);
/// torch::save(net, file) and torch::load(net, file): the module's own archive, so the bare module reads it and the other way round.
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const DistributedModule& net);
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, const DistributedModule& net);

namespace detail {

/// One forward through the wrapper. The constructor does what comes before the module's forward, `finish` what comes after;
/// without it (the module threw) the state goes back to what it was.
class ForwardPass {
 public:
  explicit ForwardPass(const DistributedModule& net);
  ~ForwardPass();
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

  bool changes_inputs() const { return changes_inputs_; }
  void change(const TensorPointers& inputs) const;
  void finish(const TensorPointers& outputs);

 private:
  std::shared_ptr<State> state_;
  std::unique_ptr<SyncBatchNormScope> sync_batch_norm_;
  bool changes_inputs_;
  bool finished_ = false;
};

/// An argument of forward: the caller's own, unless its tensors must be moved to another device or type.
template <class A>
class Input {
  using Value = std::remove_cvref_t<A>;

 public:
  Input(const ForwardPass& pass, A&& original) : original_(original) {
    if constexpr (TensorTree<Value>::kHasTensors) {
      if (pass.changes_inputs()) {
        changed_.emplace(original);
        TensorPointers tensors;
        TensorTree<Value>::collect(*changed_, tensors);
        pass.change(tensors);
      }
    }
  }
  A&& get() {
    if constexpr (TensorTree<Value>::kHasTensors) {
      if (changed_) return static_cast<A&&>(*changed_);
    }
    return static_cast<A&&>(original_);
  }

 private:
  struct Nothing {};
  std::remove_reference_t<A>& original_;
  std::conditional_t<TensorTree<Value>::kHasTensors, std::optional<Value>, Nothing> changed_;
};

/// Runs `call` (the module's forward) on `inputs` as one forward of `net`.
template <class Call, class... A>
auto forward_through(const DistributedModule& net, Call&& call, A&&... inputs) {
  ForwardPass pass(net);
  using Output = std::decay_t<decltype(call(Input<A&&>(pass, std::forward<A>(inputs)).get()...))>;
  TensorPointers tensors;
  if constexpr (std::is_void_v<Output>) {
    call(Input<A&&>(pass, std::forward<A>(inputs)).get()...);
    pass.finish(tensors);
  } else {
    auto output = call(Input<A&&>(pass, std::forward<A>(inputs)).get()...);
    TensorTree<Output>::collect(output, tensors);
    pass.finish(tensors);
    return output;
  }
}

}  // namespace detail
}  // namespace lockstep::ddp
