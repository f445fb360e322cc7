// The sentinel: it checks values that backward and the optimizer have just put into the cache.
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chrono>
#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "collectives/rank_context.h"
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

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  const Clock::time_point start_ = Clock::now();
};

class Sentinel : public OpObserver {
 public:
  explicit Sentinel(TensorNames names) : names_(std::move(names)) {}

  void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) override {
    if (!op.node) return;
    const Stopwatch looking(status_.seconds);
    backward_begins(op);
    const at::Tensor parameter = accumulated_parameter();
    if (!parameter.defined()) return;
    parameters_.add(parameter);
    for (const c10::IValue& value : inputs)
      for_each_tensor(value, [&](const at::Tensor& gradient) {
        ++status_.gradients;
        const BadValues bad = bad_values(gradient);
        if (!bad.any()) return;
        local_gradient_bad_ = true;
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

 private:
  void look_at(const RunningOp& op, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    if (op.grad) {
      // A number with a graph may be a loss. On a GPU the value is not there yet, and waiting for it would slow the
      // step down.
      if (op.sequence < 0 || tensor.dim() != 0 || !tensor.device().is_cpu() || !tensor.requires_grad()) return;
      const Stopwatch looking(status_.seconds);
      const BadValues bad = bad_values(tensor);
      if (bad.any()) {
        if (losses_.size() == kMostLosses) losses_.erase(losses_.begin());
        losses_[{op.thread, op.sequence}] = {bad, op.name};
      }
      return;
    }
    if (op.outer || !op.name.ends_with("_")) return;
    const Stopwatch looking(status_.seconds);
    const at::Tensor parameter = parameters_.find(tensor);
    if (!parameter.defined()) return;
    if (backward_seen_) ++status_.steps;
    backward_seen_ = false;
    ++status_.parameters;
    const BadValues bad = bad_values(tensor);
    if (!bad.any()) return;
    const bool gradient_bad = parameter.grad().defined() && bad_values(parameter.grad()).any();
    if (!gradient_bad)
      report(bad, FindingKind::optimizer, parameter, parameter,
             fmt::format("{}, written by {} from a finite gradient,", name_of(parameter), op.name));
    else if (!local_gradient_bad_)
      from_reduction(bad, parameter);
  }

  void backward_begins(const RunningOp& node) {
    const int task = torch::autograd::get_current_graph_task_id();
    if (task == task_) return;
    task_ = task;
    if (!backward_seen_) {  // the first backward of a step
      reported_ = reported_ && bad_;
      bad_ = false;
      local_gradient_bad_ = false;
    }
    backward_seen_ = true;
    ++status_.losses;
    const auto found = losses_.find({node.thread, node.sequence});
    if (found != losses_.end())
      report(found->second.first, FindingKind::forward, {}, {},
             fmt::format("the loss, made by {},", found->second.second));
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

  void report(const BadValues& bad, FindingKind phase, const at::Tensor& parameter, const at::Tensor& values,
              const std::string& subject) {
    if (!bad_) ++status_.bad_steps;
    bad_ = true;
    if (reported_) return;
    reported_ = true;
    const auto context = dist::current_context();
    if (context && context->world_size() > 1) context->store()->set(key_of_step(), std::vector<uint8_t>{1});
    publish_finding(bad, phase, parameter, values, RankSet{own_rank()}, subject);
  }

  void from_reduction(const BadValues& bad, const at::Tensor& parameter) {
    if (!bad_) ++status_.bad_steps;
    bad_ = true;
    if (reported_) return;
    reported_ = true;
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

  TensorNames names_;
  SeenParameters parameters_;
  NanWatchStatus status_{.on = true};
  /// Bad values that may be losses, with their operators; by thread and sequence number in the graph.
  std::map<std::pair<uint64_t, int64_t>, std::pair<BadValues, std::string>> losses_;
  int task_ = -1;  // of autograd's engine
  bool backward_seen_ = false;  // since parameters were last written
  bool local_gradient_bad_ = false;
  bool bad_ = false;  // this step
  bool reported_ = false;
};

thread_local std::unique_ptr<NanWatch> thread_watch;

}  // namespace

struct NanWatch::State {
  explicit State(TensorNames names)
      : sentinel(std::make_shared<Sentinel>(std::move(names))),
        trace(sentinel, {.operators = true, .nodes = true, .inputs = false, .outputs = true, .sites = false}) {}
  std::shared_ptr<Sentinel> sentinel;
  OpTrace trace;
};

NanWatch::NanWatch(TensorNames names) : state_(std::make_unique<State>(std::move(names))) {}
NanWatch::~NanWatch() = default;
NanWatch::NanWatch(NanWatch&&) noexcept = default;
NanWatchStatus NanWatch::status() const { return state_->sentinel->status(); }
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
