// The sentinel: it checks values that backward and the optimizer have just put into the cache, or has a device check
// them while the host goes on.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inspectors/exchange/participants.h"
#include "inspectors/findings/text.h"
#include "inspectors/nan/bad_value.h"
#include "inspectors/nan/late_checks.h"
#include "inspectors/nan/nan.h"
#include "inspectors/nan/reduced_gradients.h"
#include "inspectors/trace/op_trace.h"
#include "inspectors/trace/op_writes.h"
#include "inspectors/trace/steps.h"
#include "inspectors/trace/tensor_values.h"

namespace lockstep::inspect {
namespace {

using Clock = std::chrono::steady_clock;
using Role = WatchedValue::Role;

constexpr size_t kMostLosses = 64;

/// While values are looked at: no operator that this calls is recorded, and the time is counted.
class Looking {
 public:
  explicit Looking(double& seconds) : seconds_(seconds) {}
  ~Looking() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Looking(const Looking&) = delete;
  Looking& operator=(const Looking&) = delete;

 private:
  double& seconds_;
  const Clock::time_point start_ = Clock::now();
  const Unrecorded unrecorded_;
};

BadValue::Kind kind_of(const BadValues& bad) {
  return bad.nan > 0 ? BadValue::Kind::nan : bad.inf > 0 ? BadValue::Kind::inf : BadValue::Kind::unknown;
}

/// From what is left of the values, now that one is known to be bad and the host may wait.
BadValue::Kind kind_of(const WatchedValue& value) {
  for (const at::Tensor& each :
       {value.loss, value.parameter.defined() ? value.parameter.grad() : at::Tensor(), value.parameter})
    if (const BadValues bad = bad_values(each); bad.any()) return kind_of(bad);
  return BadValue::Kind::unknown;
}

/// Values of the CPU are checked at once. Those of a device are checked there, on the stream that made them, and the
/// host reads the results when they have arrived: in the optimizer's step, in the next forward, or when the watch ends.
class Sentinel : public OpObserver {
 public:
  explicit Sentinel(TensorNames names) : names_(std::move(names)) {}

  void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) override {
    if (!op.node) {
      operator_begins(op);
      return;
    }
    backward_begins(op);
    const at::Tensor parameter = accumulated_parameter();
    if (!parameter.defined()) return;
    const Looking looking(status_.seconds);
    parameters_.add(parameter);
    for (const c10::IValue& value : inputs)
      for_each_tensor(value, [&](const at::Tensor& gradient) {
        ++status_.gradients;
        const WatchedValue watched{.role = Role::gradient, .parameter = parameter, .loss = {}, .op = {}};
        if (checks_.add(gradient, watched, serial_)) return;
        const BadValues bad = bad_values(gradient);
        if (!bad.any()) return;
        local_bad_ = serial_;
        found(watched, bad, gradient);
      });
  }

  void after(RunningOp& op, const std::vector<c10::IValue>& outputs) override {
    if (op.node || op.engine) return;
    for (const c10::IValue& value : outputs)
      if (value.isTensor()) look_at(op, value.toTensor());
    if (!op.grad && !op.outer && op.name.ends_with("_")) look_at_list(op);
  }

  NanWatchStatus status() const { return status_; }
  void rename(const TensorNames& names) { names_ = names; }

  /// Waits for all checks that are queued. `last`: nothing is checked after this.
  void finish(bool last) {
    const Unrecorded unrecorded;
    launch();
    read(/*all=*/true, last);
  }

 private:
  enum class Phase { forward, backward, update };

  /// Checks have to be queued before what they read is overwritten. Gradients: before the reduction, and before the
  /// program goes on after backward. Updated parameters and the gradients that they were made from: before gradients
  /// are set to zero, and before the next forward.
  void operator_begins(const RunningOp& op) {
    if (op.engine) {
      if (checks_.has_next() && op.collective()) {
        const Looking looking(status_.seconds);
        launch();
      }
      return;
    }
    if (phase_ == Phase::backward) {
      phase_ = Phase::update;
    } else if (phase_ == Phase::update && op.grad) {
      phase_ = Phase::forward;
    } else {
      if ((checks_.has_next() || !updates_.empty()) && (op.collective() || overwrites_target(op.name))) {
        const Looking looking(status_.seconds);
        launch();
      }
      return;
    }
    const Looking looking(status_.seconds);
    launch();
    read(/*all=*/false, /*last=*/false);
  }

  /// Queues the checks of what was added, and of the parameters that an optimizer has written by lists.
  void launch() {
    for (const WatchedValue& each : std::exchange(updates_, {})) checks_.add(each.parameter, each, serial_);
    place_of_update_.clear();
    checks_.launch(serial_);
  }

  /// On the thread of the program, which counts the steps.
  void read(bool all, bool last) {
    checks_.note_steps(
        [this](const WatchedValue& each) { return each.parameter.defined() ? step(each.parameter) : step_of_loss(); });
    checks_.read(all, [this](const LateChecks::Bad& bad) { found_late(bad); });
    reductions_.decide(last, [this](const BadValue& bad) { publish_bad_value(bad, names_); });
  }

  int64_t step_of_loss() {
    const std::vector<at::Tensor> seen = parameters_.all();
    for (const at::Tensor& each : seen)
      if (names_.find(each)) return step(each);
    return step({});
  }

  void look_at(const RunningOp& op, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (op.grad) {
      look_at_loss(op, tensor);
      return;
    }
    if (op.outer) return;
    const at::Tensor parameter = parameters_.find(tensor);
    if (!parameter.defined() || !writes_in_place(op)) return;
    parameters_.add(parameter);  // its new version is known, so that no operator on lists is taken for the writer
    const Looking looking(status_.seconds);
    updated(op, parameter, tensor);
  }

  /// Operators on lists return nothing. Those of an optimizer write parameters: `_foreach_…_` tell by the parameters'
  /// versions, which `_fused_…_` leave; these write what has a gradient.
  void look_at_list(const RunningOp& op) {
    const bool fused = op.name.starts_with("_fused_");
    if (!fused && !op.name.starts_with("_foreach_")) return;
    const Looking looking(status_.seconds);
    for (const at::Tensor& parameter : fused ? parameters_.all() : parameters_.take_written()) {
      const at::Tensor gradient = parameter.grad();
      if (fused && !gradient.defined()) continue;
      if (!is_checked_late(parameter)) {
        updated(op, parameter, parameter);
        continue;
      }
      // An optimizer may write a parameter more than once, and its value is checked when all of it is over.
      const auto [place, first] = place_of_update_.try_emplace(parameter.unsafeGetTensorImpl(), updates_.size());
      if (!first) {
        updates_[place->second].op = op.name;
        continue;
      }
      step_is_taken();
      updates_.push_back({.role = Role::parameter, .parameter = parameter, .loss = {}, .op = op.name});
      WatchedValue reduced = updates_.back();
      reduced.role = Role::reduced_gradient;
      if (gradient.defined()) checks_.add(gradient, std::move(reduced), serial_);
    }
  }

  void step_is_taken() {
    if (backward_seen_) ++status_.steps;
    backward_seen_ = false;
    ++status_.parameters;
  }

  /// `tensor`: the parameter, or its alias, after an operator has written it.
  void updated(const RunningOp& op, const at::Tensor& parameter, const at::Tensor& tensor) {
    step_is_taken();
    const WatchedValue update{.role = Role::parameter, .parameter = parameter, .loss = {}, .op = op.name};
    WatchedValue gradient = update;
    gradient.role = Role::reduced_gradient;
    if (check_update_later(update, gradient, tensor)) return;
    const BadValues bad = bad_values(tensor);
    if (!bad.any()) return;
    const bool gradient_bad = parameter.grad().defined() && bad_values(parameter.grad()).any();
    if (!gradient_bad)
      found(update, bad, parameter);
    else if (local_bad_ != serial_)
      found(gradient, bad, parameter.grad());
  }

  /// A number with a graph may be a loss.
  void look_at_loss(const RunningOp& op, const at::Tensor& tensor) {
    if (op.sequence < 0 || tensor.dim() != 0 || !tensor.requires_grad()) return;
    const Looking looking(status_.seconds);
    Loss loss{.op = op.name};
    if (tensor.device().is_cpu()) {
      loss.bad = bad_values(tensor);
      if (!loss.bad.any()) return;
    } else {
      // It is checked if backward begins with it. Until then its memory is kept, which is not that of a large tensor.
      constexpr size_t kMostBytes = 4096;
      const at::Tensor values = float_values(tensor);
      if (!values.defined() || values.storage().nbytes() > kMostBytes || !device_functions(values.device().type()))
        return;
      loss.values = values.detach();
      loss.stream = c10::impl::VirtualGuardImpl(values.device().type()).getStream(values.device());
    }
    if (losses_.size() == kMostLosses) losses_.erase(losses_.begin());
    losses_.insert_or_assign({op.thread, op.sequence}, std::move(loss));
  }

  /// The gradient comes before the parameter: the first bad one of them is the cause.
  bool check_update_later(const WatchedValue& update, const WatchedValue& gradient, const at::Tensor& tensor) {
    if (!is_checked_late(tensor)) return false;
    if (WatchedValue* known = checks_.next_update_of(update.parameter)) {  // some optimizers write it several times
      known->op = update.op;
      return true;
    }
    if (update.parameter.grad().defined()) checks_.add(update.parameter.grad(), gradient, serial_);
    return checks_.add(tensor, update, serial_);
  }

  static bool is_checked_late(const at::Tensor& tensor) {
    return !tensor.device().is_cpu() && device_functions(tensor.device().type()) && float_values(tensor).defined();
  }

  void backward_begins(const RunningOp& node) {
    const int task = torch::autograd::get_current_graph_task_id();
    if (task == task_) return;
    task_ = task;
    const Looking looking(status_.seconds);
    launch();  // of the last step
    phase_ = Phase::backward;
    if (!backward_seen_) ++serial_;  // the first backward of a step
    backward_seen_ = true;
    ++status_.losses;
    const auto begun = losses_.find({node.thread, node.sequence});
    if (begun != losses_.end()) {
      const Loss& loss = begun->second;
      const WatchedValue watched{.role = Role::loss, .parameter = {}, .loss = loss.values, .op = loss.op};
      if (loss.values.defined())
        checks_.add(loss.values, watched, *loss.stream, serial_);
      else
        found(watched, loss.bad, {});
    }
    losses_.clear();
  }

  /// Returns the number of the current step; the wrapper counts it if the parameter belongs to one.
  int64_t step(const at::Tensor& parameter) const {
    const TensorName* name = parameter.defined() ? names_.find(parameter) : nullptr;
    if (const auto steps = name ? name->steps() : std::nullopt) return *steps;
    const int64_t counted = counted_steps();
    return counted > 0 ? counted + (backward_seen_ ? 1 : 0) : serial_;
  }

  /// Some parameter with a name to which gradients of the running node flow; none outside backward.
  at::Tensor some_parameter() const {
    std::vector<torch::autograd::Node*> left = {torch::autograd::get_current_node().get()};
    std::set<torch::autograd::Node*> seen = {nullptr};
    while (!left.empty()) {
      torch::autograd::Node* node = left.back();
      left.pop_back();
      if (!seen.insert(node).second) continue;
      if (const auto* accumulator = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
          accumulator && names_.find(accumulator->variable))
        return accumulator->variable;
      for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
    }
    return {};
  }

  /// Counts the step as bad. Whether it is to be reported: the first finding of a step, unless the step before was bad.
  bool mark_bad(int64_t serial) {
    if (last_bad_ && serial <= *last_bad_) return false;
    ++status_.bad_steps;
    const bool reported_before = last_bad_ && *last_bad_ == serial - 1;
    last_bad_ = serial;
    return !reported_before;
  }

  /// By a check at once. `values`: where the bad ones are.
  void found(const WatchedValue& value, const BadValues& bad, const at::Tensor& values) {
    if (!mark_bad(serial_)) return;
    const bool reduced = value.role == Role::reduced_gradient;
    if (reduced && !names_reduced_gradient(serial_)) return;
    if (!reduced) announce_bad_value(serial_);
    publish_bad_value({.value = value,
                       .kind = kind_of(bad),
                       .step = step(value.parameter.defined() ? value.parameter : some_parameter()),
                       .ranks = reduced ? live_ranks() : RankSet{own_rank()},
                       .values = values,
                       .where = describe_call_site(capture_call_site())},
                      names_);
  }

  void found_late(const LateChecks::Bad& bad) {
    const WatchedValue& value = bad.value;
    const bool reduced = value.role == Role::reduced_gradient;
    if (value.role == Role::loss || value.role == Role::gradient) {
      local_bad_ = bad.serial;
    } else if (reduced && local_bad_ == bad.serial) {
      return;
    }
    if (!mark_bad(bad.serial)) return;
    const auto publish = [this](const BadValue& each) { publish_bad_value(each, names_); };
    const BadValue found{.value = value,
                         .kind = kind_of(value),
                         .step = bad.step,
                         .ranks = reduced ? live_ranks() : RankSet{own_rank()},
                         .values = {},
                         .where = {}};
    if (reduced) return reductions_.add(bad.serial, found, publish);
    announce_bad_value(bad.serial);
    publish(found);
  }

  struct Loss {
    std::string op;
    BadValues bad;  // of a number on the CPU, which is bad
    at::Tensor values;  // of one on a device
    std::optional<c10::Stream> stream;  // that made it
  };

  TensorNames names_;
  SeenParameters parameters_;
  NanWatchStatus status_{.on = true};
  /// Values that may be losses; by thread and sequence number in the graph.
  std::map<std::pair<uint64_t, int64_t>, Loss> losses_;
  int task_ = -1;  // of autograd's engine
  Phase phase_ = Phase::forward;
  bool backward_seen_ = false;  // since parameters were last written
  int64_t serial_ = 0;  // of the step, by its first backward
  int64_t local_bad_ = -1;  // the last step in which a gradient of this rank was bad before the reduction
  std::optional<int64_t> last_bad_;  // the last step with any bad value
  LateChecks checks_;
  /// Parameters on a device that operators on lists have written, not yet among `checks_`.
  std::vector<WatchedValue> updates_;
  std::unordered_map<const at::TensorImpl*, size_t> place_of_update_;
  LateReductions reductions_;
};

thread_local std::unique_ptr<NanWatch> thread_watch;

}  // namespace

struct NanWatch::State {
  explicit State(TensorNames names)
      : sentinel(std::make_shared<Sentinel>(std::move(names))),
        trace(sentinel, {.operators = true,
                         .nodes = true,
                         .inputs = false,
                         .outputs = true,
                         .sites = false,
                         .observer_is_unrecorded = true}) {}
  std::shared_ptr<Sentinel> sentinel;
  OpTrace trace;
};

NanWatch::NanWatch(TensorNames names) : state_(std::make_unique<State>(std::move(names))) {}
NanWatch::~NanWatch() {
  if (!state_) return;
  try {
    state_->sentinel->finish(/*last=*/true);
  } catch (const std::exception& error) {  // of a device whose work has failed, which the program learns elsewhere
    TORCH_WARN("nan_watch: the last checks on a device could not be read: ", error.what());
  }
}
NanWatch::NanWatch(NanWatch&&) noexcept = default;
NanWatchStatus NanWatch::status() const {
  state_->sentinel->finish(/*last=*/false);
  return state_->sentinel->status();
}
void NanWatch::rename(const TensorNames& names) { state_->sentinel->rename(names); }

void nan_on(const TensorNames& names) {
  thread_watch.reset();
  thread_watch = std::make_unique<NanWatch>(names);
}

void nan_off() { thread_watch.reset(); }

void nan_names(const TensorNames& names) {
  if (thread_watch) thread_watch->rename(names);
}

std::string nan_status() {
  if (!thread_watch) return "off: %nan on watches losses, gradients and updated parameters";
  const NanWatchStatus status = thread_watch->status();
  return fmt::format(
      "on: {}, {} of them bad; checked {}, {} and {} of parameters in {:.3g} ms", counted(status.steps, "step"),
      status.bad_steps, status.losses == 1 ? "1 loss" : fmt::format("{} losses", status.losses),
      counted(status.gradients, "gradient"), counted(status.parameters, "update"), status.seconds * 1000);
}

}  // namespace lockstep::inspect
