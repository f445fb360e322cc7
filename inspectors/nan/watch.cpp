// The sentinel: it checks values that backward and the optimizer have just put into the cache, or has a device check
// them while the host goes on.
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "collectives/rank_context.h"
#include "inspectors/device/late_flag.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/text.h"
#include "inspectors/nan/nan.h"
#include "inspectors/trace/op_trace.h"
#include "inspectors/trace/steps.h"
#include "inspectors/trace/tensor_values.h"

namespace lockstep::inspect {
namespace {

using Clock = std::chrono::steady_clock;

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

enum class BadKind { nan, inf, unknown };

/// A value that is checked on a device. What the host needs when the result comes, at that time.
struct CheckedValue {
  enum class Role {
    loss,
    gradient,  // before the reduction
    reduced_gradient,  // that the optimizer has used
    parameter,  // that it has written
  };
  Role role = Role::gradient;
  at::Tensor parameter;  // undefined for a loss
  at::Tensor loss;
  std::string op;  // that made the loss, or wrote the parameter
};

/// Values of one stream that are checked by one launch.
struct Batch {
  static constexpr size_t kMostTensors = 128;
  static constexpr size_t kMostBytes = size_t{64} << 20;  // of gradients that are kept alive until the launch

  std::optional<c10::Stream> stream;
  std::vector<at::Tensor> tensors;
  std::vector<CheckedValue> values;  // as many
  size_t bytes = 0;

  bool empty() const { return tensors.empty(); }
  bool full() const { return tensors.size() >= kMostTensors || bytes >= kMostBytes; }
};

struct QueuedCheck {
  LateFlag flag;
  std::vector<CheckedValue> values;
  int64_t serial;  // of the step
  std::vector<int64_t> steps;  // as the user counts, by value; empty until the program's thread has asked
};

/// A bad gradient after the reduction, until the other ranks have said whether theirs were finite before it.
struct Undecided {
  BadKind kind;
  at::Tensor parameter;
  int64_t step = 0;
  std::string key;
  RankSet ranks;
};

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
        if (check_later(gradient, {.role = CheckedValue::Role::gradient, .parameter = parameter, .loss = {}, .op = {}}))
          return;
        const BadValues bad = bad_values(gradient);
        if (!bad.any()) return;
        local_bad_ = serial_;
        report(bad, FindingKind::backward, parameter, gradient,
               fmt::format("the gradient of {}, before the reduction,", name_of(parameter)));
      });
  }

  void after(RunningOp& op, const std::vector<c10::IValue>& outputs) override {
    if (op.node || op.engine) return;
    for (const c10::IValue& value : outputs)
      if (value.isTensor()) look_at(op, value.toTensor());
  }

  NanWatchStatus status() const { return status_; }
  void rename(const TensorNames& names) { names_ = names; }

  /// Waits for all checks that are queued. `last`: nothing is checked after this.
  void finish(bool last) {
    const Unrecorded unrecorded;
    launch();
    note_steps();
    while (!checks_.empty()) read_oldest();
    decide(last);
  }

 private:
  enum class Phase { forward, backward, update };

  // ---- on a device

  /// Whether the check is queued, or there is nothing to check; false: the value can only be checked at once.
  bool check_later(const at::Tensor& tensor, CheckedValue value) {
    if (!tensor.defined() || tensor.device().is_cpu()) return false;
    const at::Tensor values = float_values(tensor);
    if (!values.defined() || values.numel() == 0) return true;
    if (!device_functions(values.device().type())) return false;
    add(values, std::move(value), c10::impl::VirtualGuardImpl(values.device().type()).getStream(values.device()));
    return true;
  }

  void add(const at::Tensor& values, CheckedValue value, c10::Stream stream) {
    if (!batch_.empty() && (*batch_.stream != stream || batch_.full())) launch();
    batch_.stream = stream;
    // An alias: the accumulation takes the gradient itself over only if nobody else has it.
    batch_.tensors.push_back(values.detach());
    batch_.values.push_back(std::move(value));
    batch_.bytes += values.nbytes();
  }

  void launch() {
    if (batch_.empty()) return;
    Batch batch = std::exchange(batch_, {});
    const DeviceFunctions* functions = device_functions(batch.stream->device_type());
    checks_.push_back({.flag = LateFlag(*functions, batch.tensors, *batch.stream),
                       .values = std::move(batch.values),
                       .serial = serial_,
                       .steps = {}});
  }

  /// Checks have to be queued before what they read is overwritten. Gradients: before the reduction, and before the
  /// program goes on after backward. Updated parameters and the gradients that they were made from: before gradients
  /// are set to zero, and before the next forward.
  void operator_begins(const RunningOp& op) {
    if (op.engine) {
      if (batch_.empty() || !op.collective()) return;
      const Looking looking(status_.seconds);
      launch();
      return;
    }
    if (phase_ == Phase::backward) {
      phase_ = Phase::update;
    } else if (phase_ == Phase::update && op.grad) {
      phase_ = Phase::forward;
    } else {
      if (!batch_.empty() && (op.collective() || op.name == "zero_" || op.name == "copy_")) {
        const Looking looking(status_.seconds);
        launch();
      }
      return;
    }
    const Looking looking(status_.seconds);
    launch();
    note_steps();
    read_arrived();
  }

  /// On the thread of the program, which counts the steps.
  void note_steps() {
    for (QueuedCheck& check : checks_) {
      if (!check.steps.empty()) continue;
      for (const CheckedValue& each : check.values)
        check.steps.push_back(each.parameter.defined() ? step(each.parameter) : step_of_loss());
    }
  }

  int64_t step_of_loss() const {
    const std::vector<at::Tensor> seen = parameters_.all();
    for (const at::Tensor& each : seen)
      if (names_.find(each)) return step(each);
    return step({});
  }

  void read_arrived() {
    // Not more than the device has of late: the host is rarely so far ahead, and the memory for flags is bounded.
    constexpr size_t kMostUnread = 256;
    while (!checks_.empty() && (checks_.size() > kMostUnread || checks_.front().flag.arrived())) read_oldest();
    decide(/*last=*/false);
  }

  void read_oldest() {
    const QueuedCheck check = std::move(checks_.front());
    checks_.pop_front();
    const auto bad = check.flag.read();
    if (!bad) return;
    const CheckedValue& value = check.values.at(*bad);
    const int64_t step = check.steps.empty() ? this->step(value.parameter) : check.steps.at(*bad);
    const std::string key = late_key(check.serial);
    using Role = CheckedValue::Role;
    if (value.role == Role::loss || value.role == Role::gradient) {
      local_bad_ = check.serial;
    } else if (value.role == Role::reduced_gradient && local_bad_ == check.serial) {
      return;
    }
    if (!mark_bad(check.serial)) return;
    const BadKind kind = kind_of(value);
    switch (value.role) {
      case Role::loss:
        announce(key);
        publish_late(kind, FindingKind::forward, {}, step, RankSet{own_rank()},
                     fmt::format("the loss, made by {},", value.op));
        break;
      case Role::gradient:
        announce(key);
        publish_late(kind, FindingKind::backward, value.parameter, step, RankSet{own_rank()},
                     fmt::format("the gradient of {}, before the reduction,", name_of(value.parameter)));
        break;
      case Role::parameter:
        announce(key);
        publish_late(kind, FindingKind::optimizer, value.parameter, step, RankSet{own_rank()},
                     fmt::format("{}, written by {} from a finite gradient,", name_of(value.parameter), value.op));
        break;
      case Role::reduced_gradient:
        reduced_gradient_is_bad({kind, value.parameter, step, key, live_ranks()});
        break;
    }
  }

  /// The reduced gradient is bad on every rank, but a rank may read later than this one that its own was bad before.
  /// So each rank whose own was finite says so, and the lowest one waits for all of these, without blocking.
  void reduced_gradient_is_bad(Undecided found) {
    const auto context = dist::current_context();
    if (!context || context->world_size() == 1) return publish_reduced(found, /*finite_before=*/true);
    context->store()->set(finite_key(found.key, own_rank()), std::vector<uint8_t>{1});
    if (own_rank() == found.ranks.ranks().front()) undecided_.push_back(std::move(found));
  }

  void decide(bool last) {
    const auto context = dist::current_context();
    std::erase_if(undecided_, [&](const Undecided& each) {
      if (!context) return true;
      if (context->store()->check({each.key})) return true;  // a rank has named its own gradient
      std::vector<std::string> finite;
      for (const int rank : each.ranks.ranks()) finite.push_back(finite_key(each.key, rank));
      const bool all_finite = context->store()->check(finite);
      if (!all_finite && !last) return false;
      publish_reduced(each, all_finite);
      return true;
    });
  }

  void publish_reduced(const Undecided& found, bool finite_before) {
    publish_late(found.kind, FindingKind::backward, found.parameter, found.step, found.ranks,
                 fmt::format("the gradient of {} after the reduction{}", name_of(found.parameter),
                             finite_before ? " (finite on every rank before it)" : ""));
  }

  static std::string finite_key(const std::string& key, int rank) { return fmt::format("{}/finite/{}", key, rank); }

  std::string late_key(int64_t serial) const {
    const auto context = dist::current_context();
    return fmt::format("inspect/nan/{}/device/{}", context ? context->generation() : 0, serial);
  }

  static void announce(const std::string& key) {
    const auto context = dist::current_context();
    if (context && context->world_size() > 1) context->store()->set(key, std::vector<uint8_t>{1});
  }

  /// From what is left of the values, now that one is known to be bad and the host may wait.
  static BadKind kind_of(const CheckedValue& value) {
    for (const at::Tensor& each :
         {value.loss, value.parameter.defined() ? value.parameter.grad() : at::Tensor(), value.parameter}) {
      const BadValues bad = bad_values(each);
      if (bad.any()) return bad.nan > 0 ? BadKind::nan : BadKind::inf;
    }
    return BadKind::unknown;
  }

  void publish_late(BadKind kind, FindingKind phase, const at::Tensor& parameter, int64_t step, const RankSet& ranks,
                    const std::string& subject) {
    const About about{.inspector = "nan", .object = {}, .step = step, .ranks = ranks};
    Finding finding = about.finding(Severity::fault, kind == BadKind::inf ? Verdict::inf : Verdict::nan, phase);
    if (parameter.defined()) {
      finding.tensors.push_back(finding_tensor(name_of(parameter), parameter));
      if (const TensorName* name = names_.find(parameter); name && !name->object.empty()) finding.object = name->object;
    }
    const char* what = kind == BadKind::nan ? "NaN" : kind == BadKind::inf ? "Inf" : "NaN or Inf";
    set_message_with_ranks(finding, fmt::format("{} became {} in step {} ({})", subject, what, step, to_string(phase)));
    Report report;
    report.findings.push_back(std::move(finding));
    publish(report);
  }

  // ---- at once

  void look_at(const RunningOp& op, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (op.grad) {
      look_at_loss(op, tensor);
      return;
    }
    if (op.outer || !op.name.ends_with("_")) return;
    const at::Tensor parameter = parameters_.find(tensor);
    if (!parameter.defined()) return;
    const Looking looking(status_.seconds);
    if (backward_seen_) ++status_.steps;
    backward_seen_ = false;
    ++status_.parameters;
    if (check_update_later(op, parameter, tensor)) return;
    const BadValues bad = bad_values(tensor);
    if (!bad.any()) return;
    const bool gradient_bad = parameter.grad().defined() && bad_values(parameter.grad()).any();
    if (!gradient_bad)
      report(bad, FindingKind::optimizer, parameter, parameter,
             fmt::format("{}, written by {} from a finite gradient,", name_of(parameter), op.name));
    else if (local_bad_ != serial_)
      from_reduction(bad, parameter);
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
  bool check_update_later(const RunningOp& op, const at::Tensor& parameter, const at::Tensor& tensor) {
    if (tensor.device().is_cpu() || !device_functions(tensor.device().type()) || !float_values(tensor).defined())
      return false;
    for (CheckedValue& each : batch_.values) {  // some optimizers write a parameter several times
      if (each.role != CheckedValue::Role::parameter || !each.parameter.is_same(parameter)) continue;
      each.op = op.name;
      return true;
    }
    if (parameter.grad().defined())
      check_later(parameter.grad(),
                  {.role = CheckedValue::Role::reduced_gradient, .parameter = parameter, .loss = {}, .op = op.name});
    return check_later(tensor,
                       {.role = CheckedValue::Role::parameter, .parameter = parameter, .loss = {}, .op = op.name});
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
    const auto found = losses_.find({node.thread, node.sequence});
    if (found != losses_.end()) {
      const Loss& loss = found->second;
      if (loss.values.defined())
        add(loss.values, {.role = CheckedValue::Role::loss, .parameter = {}, .loss = loss.values, .op = loss.op},
            *loss.stream);
      else
        report(loss.bad, FindingKind::forward, {}, {}, fmt::format("the loss, made by {},", loss.op));
    }
    losses_.clear();
  }

  /// The number of the current step; counted by the wrapper if the parameter belongs to one.
  int64_t step(const at::Tensor& parameter) const {
    const TensorName* name = parameter.defined() ? names_.find(parameter) : nullptr;
    if (const auto steps = name ? name->steps() : std::nullopt) return *steps;
    if (const int64_t counted = counted_steps(); counted > 0) return counted + (backward_seen_ ? 1 : 0);
    return status_.steps + (backward_seen_ ? 1 : 0);
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

  std::string name_of(const at::Tensor& parameter) const {
    const TensorName* name = names_.find(parameter);
    return name ? name->name : fmt::format("a parameter of shape {}", shape_text(parameter));
  }

  /// Counts the step as bad. Whether it is to be reported: the first finding of a step, unless the step before was bad.
  bool mark_bad(int64_t serial) {
    if (last_bad_ && serial <= *last_bad_) return false;
    ++status_.bad_steps;
    const bool reported_before = last_bad_ && *last_bad_ == serial - 1;
    last_bad_ = serial;
    return !reported_before;
  }

  void report(const BadValues& bad, FindingKind phase, const at::Tensor& parameter, const at::Tensor& values,
              const std::string& subject) {
    if (!mark_bad(serial_)) return;
    announce(key_of_step());
    publish_finding(bad, phase, parameter, values, RankSet{own_rank()}, subject);
  }

  void from_reduction(const BadValues& bad, const at::Tensor& parameter) {
    if (!mark_bad(serial_)) return;
    const auto context = dist::current_context();
    const RankSet alive = live_ranks();
    // A rank with bad gradients before the reduction has set the key before the reduction began.
    if (context && context->world_size() > 1) {
      if (context->store()->check({key_of_step()}) || own_rank() != alive.ranks().front()) return;
    }
    publish_finding(
        bad, FindingKind::backward, parameter, parameter.grad(), alive,
        fmt::format("the gradient of {} after the reduction (finite on every rank before it)", name_of(parameter)));
  }

  /// Steps are counted when parameters are written, so before that the number of the current step is one more.
  std::string key_of_step() const {
    const auto context = dist::current_context();
    return fmt::format("inspect/nan/{}/{}", context ? context->generation() : 0,
                       status_.steps + (backward_seen_ ? 1 : 0));
  }

  void publish_finding(const BadValues& bad, FindingKind phase, const at::Tensor& parameter, const at::Tensor& values,
                       const RankSet& ranks, const std::string& subject) {
    const About about{.inspector = "nan",
                      .object = {},
                      .step = step(parameter.defined() ? parameter : some_parameter()),
                      .ranks = ranks};
    Finding finding = about.finding(Severity::fault, bad.nan > 0 ? Verdict::nan : Verdict::inf, phase);
    if (parameter.defined()) {
      FindingTensor tensor = finding_tensor(name_of(parameter), values.defined() ? values : parameter);
      tensor.count = bad.nan > 0 ? bad.nan : bad.inf;
      tensor.first = first_bad(values);
      finding.tensors.push_back(std::move(tensor));
      if (const TensorName* name = names_.find(parameter); name && !name->object.empty()) finding.object = name->object;
    }
    if (auto where = describe_call_site(capture_call_site()); !where.empty()) finding.where = std::move(where);
    set_message_with_ranks(finding, fmt::format("{} became {} in step {} ({})", subject, bad.nan > 0 ? "NaN" : "Inf",
                                                *finding.step, to_string(phase)));
    Report report;
    report.findings.push_back(std::move(finding));
    publish(report);
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
  Batch batch_;
  std::deque<QueuedCheck> checks_;
  std::vector<Undecided> undecided_;
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
