// A DistributedModule is a DistributedDataParallel without the type of its module: everything but forward. Functions
// that take any wrapped module (join, a trainer) take it. A value of it is a handle: copies share one wrapped module.
#pragma once
#include <torch/torch.h>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>
#include <type_traits>
#include <vector>

#include "ddp/hooks/comm_hooks.h"
#include "ddp/options.h"
#include "ddp/step/tensor_tree.h"

namespace c10d {
class Reducer;  // complete in <torch/csrc/distributed/c10d/reducer.hpp>
}

namespace lockstep::ddp {

class DistributedModule;

namespace detail {
class State;
class SyncBatchNormScope;
/// Only ddp/ itself uses it.
const std::shared_ptr<State>& state_of(const DistributedModule& net);
}  // namespace detail

/// While it lives, backward adds up gradients on this rank only. Scopes nest; the end of one, also by an exception,
/// restores what was before it. A scope under a condition is
/// `std::optional<ddp::NoSync> scope; if (…) scope.emplace(net);`
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(const DistributedModule& net);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<detail::State> state_;
  bool before_;
};

class DistributedModule {
 public:
  /// Returns the wrapped module.
  const std::shared_ptr<torch::nn::Module>& module() const;
  /// Return parameters and buffers under their own names, without a prefix. A shared one is listed once, under its
  /// first name. LibTorch's own lists have it under every name, and an optimizer made from those steps it twice.
  std::vector<torch::Tensor> parameters() const;
  torch::OrderedDict<std::string, torch::Tensor> named_parameters() const;
  torch::OrderedDict<std::string, torch::Tensor> named_buffers() const;
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool is_training() const;

  /// Sets the gradients to none, or to zeros. Works with gradient_as_bucket_view, too. Local.
  void zero_grad(bool set_to_none = true) const;

  /// Keeps gradients of a forward within the scope on this rank. A scope around backward alone changes nothing, as in
  /// PyTorch: `{ auto scope = net.no_sync(); net(x).sum().backward(); }`. Local.
  NoSync no_sync() const { return NoSync(*this); }
  /// Whether the next forward announces a synchronised backward. Accumulation loops set it per micro-step.
  bool require_backward_grad_sync() const;
  void require_backward_grad_sync(bool on) const;

  /// Runs `training_loop`, in which ranks may have different numbers of batches. A rank that has finished its own
  /// answers the collectives of the others until all have finished; then all take the model of a rank that trained
  /// last. Collective. An exception out of the loop passes through at once. Throws ArgumentError for a module whose
  /// collectives no rank could answer, StateError for a forward out of turn, and with throw_on_early_termination Error
  /// on every rank.
  void join(const std::function<void()>& training_loop, const JoinOptions& options = {}) const;

  /// Lets `hook` reduce the gradients. Called once per wrapper, before the first backward, on every rank. Throws
  /// StateError for a second one.
  void register_comm_hook(CommHook hook) const;
  /// Does the same with one of c10d's own hooks: ALLREDUCE or FP16_COMPRESS.
  void register_builtin_comm_hook(c10d::BuiltinCommHookType hook) const;
  /// Lets `hook` synchronise the buffers.
  void register_buffer_comm_hook(BufferCommHook hook,
                                 BufferCommHookLocation location = BufferCommHookLocation::kPostForward) const;

  /// Declares that the graph is the same in every step, as Options::static_graph does at construction. Throws
  /// StateError after the first forward.
  void set_static_graph() const;
  /// With find_unused_parameters or static_graph, outputs are cloned by default, so that they can be changed in place.
  void set_ddp_sink_clone(bool clone) const;
  /// Returns c10d's own record of this wrapper: construction, buckets, average times of the steps that were sampled.
  at::DDPLoggingData get_ddp_logging_data() const;
  at::DDPLoggingData logging_data() const { return get_ddp_logging_data(); }
  /// Takes times in the first 10 steps and in one of `sample_rate` after them. Throws ArgumentError below 1.
  void set_ddp_runtime_logging_sample_rate(int sample_rate) const;

  /// Returns the buckets in the order of reduction. They change once, before the second synchronised forward.
  std::vector<Bucket> buckets() const;
  /// Returns the names of the parameters that are reduced, by their index in the Reducer.
  const std::vector<std::string>& reduced_parameter_names() const;
  /// Returns c10d's Reducer; null for one rank without a hook, where there is nothing to reduce.
  std::shared_ptr<c10d::Reducer> reducer() const;
  /// Returns the number of synchronised forwards: that of the step that runs or was last. After reset(), or when the
  /// ranks were reconnected, the end of the next synchronised backward sets it to the smallest count of any rank: a
  /// step that failed on one rank is not counted.
  int64_t steps() const;
  const Options& options() const;
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;
  torch::Device device() const;

  /// Lets all ranks take parameters and buffers of rank `src` of the group, for example after loading on one rank.
  /// Collective.
  void sync_module_states(int src = 0) const;
  /// Throws Error if the last backward did not reduce every gradient, with the names of those that it left out. Local.
  void check_reducer_finalized() const;
  /// Starts afresh after a step that failed (an exception in forward or backward): new Reducer, same hooks. Gradients
  /// are not changed: call zero_grad(). Call it on every rank; local. After dist::regroup, which a session runs before
  /// the cell that follows a failed one, the next forward does so.
  void reset() const;
  /// Does the same as reset(), and reduces over `group` from now on. Hooks keep the group that they were made with.
  void update_process_group(c10::intrusive_ptr<c10d::ProcessGroup> group) const;

  /// Restores full precision with mixed_precision, where a forward without a backward leaves parameters in low
  /// precision. Saving, loading and synchronising the wrapper, and its next forward, begin with it. Local.
  void restore_full_precision() const;

  // Handles have no moves, only copies: one that was moved from stays valid.
  DistributedModule(const DistributedModule&) = default;
  DistributedModule& operator=(const DistributedModule&) = default;

 protected:
  DistributedModule(std::shared_ptr<torch::nn::Module> module, Options options);

 private:
  friend const std::shared_ptr<detail::State>& detail::state_of(const DistributedModule& net);
  friend class Inspection;  // ddp/inspection.h
  explicit DistributedModule(std::shared_ptr<detail::State> state);

  std::shared_ptr<detail::State> state_;
};

std::ostream& operator<<(std::ostream& out, const DistributedModule& net);
/// torch::save(net, file) and torch::load(net, file) use the module's own archive, so the bare module can read it, and
/// the wrapper that of the bare module.
torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive, const DistributedModule& net);
torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive, const DistributedModule& net);

namespace detail {

/// One forward through the wrapper. The constructor does what comes before the module's forward, `finish` what comes
/// after. Without `finish` (the module threw), the destructor restores the state of before.
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

/// Holds an argument of forward: the caller's own, unless its tensors must be moved to another device or type.
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

/// Does what DistributedModule::join does for several wrapped modules over one group that are trained in one loop, one
/// after the other: forward and backward of the first, then of the second. Ranks that are out of data answer in that
/// order. Collective. Throws ArgumentError without modules, with several groups, or for modules whose collectives no
/// rank could answer; StateError for a forward out of turn.
void join(const std::vector<DistributedModule>& nets, const std::function<void()>& training_loop,
          const JoinOptions& options = {});

}  // namespace lockstep::ddp
