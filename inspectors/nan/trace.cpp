#include "inspectors/nan/trace.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "inspectors/trace/op_writes.h"

namespace lockstep::inspect {
namespace {

constexpr size_t kMostOrigins = 10'000;
constexpr size_t kMostKept = 4096;

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

bool is_bad_number(const c10::IValue& value) {
  if (value.isDouble()) return !std::isfinite(value.toDouble());
  if (value.isScalar()) {
    const c10::Scalar scalar = value.toScalar();
    return scalar.isFloatingPoint() && !std::isfinite(scalar.toDouble());
  }
  return false;
}

/// Returns the ignore_index of a loss.
std::optional<int64_t> ignored_class(const RunningOp& op, c10::ArrayRef<c10::IValue> inputs) {
  if (op.name.find("nll_loss") == std::string::npos && op.name.find("cross_entropy") == std::string::npos)
    return std::nullopt;
  const auto handle = op.handle();
  const auto index = handle ? handle->schema().argumentIndexWithName("ignore_index") : std::nullopt;
  if (!index || static_cast<size_t>(*index) >= inputs.size() || !inputs[static_cast<size_t>(*index)].isInt())
    return std::nullopt;
  return inputs[static_cast<size_t>(*index)].toInt();
}

/// Returns the public name: "log_softmax" for "_log_softmax".
std::string public_name(const std::string& name) {
  const size_t start = name.find_first_not_of('_');
  return start == std::string::npos ? name : name.substr(start);
}

}  // namespace

struct NanTrace::Notes : OpNotes {
  struct Input {
    at::Tensor tensor;  // held until the operator has run
    size_t argument = 0;
    BadValues bad;
    size_t origin = 0;  // if bad
    std::string range;  // if the operator may overwrite the input
  };
  std::vector<Input> inputs;
  uint64_t serial = 0;  // at the begin of the operator
  bool in_place = false;  // writes_in_place()
  bool bad_number = false;  // an argument is NaN or Inf: the values are requested
  std::optional<int64_t> ignored;  // ignore_index of a loss
  const void* parameter = nullptr;  // the first parameter that the operator reads
};

size_t NanTrace::add_origin(BadOrigin origin) {
  if (origins_.size() >= kMostOrigins) return kMostOrigins - 1;
  origins_.push_back(std::move(origin));
  return origins_.size() - 1;
}

void NanTrace::taint(const at::Tensor& tensor, size_t origin) {
  taints_.insert_or_assign(storage_of(tensor), Taint{weak_storage_of(tensor), origin, ++serial_});
}

const NanTrace::Taint* NanTrace::taint_of(const at::Tensor& tensor) const {
  const auto found = taints_.find(storage_of(tensor));
  return found == taints_.end() ? nullptr : &found->second;
}

void NanTrace::reach(size_t origin, BadOrigin::Reached what, const void* identity) {
  BadOrigin& reached = origins_[origin];
  if (reached.reached != BadOrigin::Reached::kNothing) return;
  reached.reached = what;
  reached.reached_identity = identity;
  // Values of an earlier origin may still reach a result, but from here on the program runs with bad values.
  if (reached.kind == BadOrigin::Kind::kMade) decided_ = true;
}

BadOrigin NanTrace::describe(const RunningOp& op) const {
  BadOrigin origin;
  origin.number = count_;
  origin.op = public_name(op.name);
  const RunningOp& called = op.outermost();
  if (public_name(called.name) != origin.op) origin.within = public_name(called.name);
  origin.engine = op.engine;
  origin.grad = op.grad;
  origin.site = op.site;
  if (const RunningOp* node = op.backward_node()) {
    origin.node = node->name;
    if (const ForwardOp* forward = forward_.find(*node)) {
      origin.forward = *forward;
      origin.site = forward->site;
      origin.parameter = forward->parameter;
    }
    if (origin.op == origin.node) origin.op = origin.forward.name.empty() ? origin.node : origin.forward.name;
    origin.within.clear();
  } else {
    for (const RunningOp* each = &op; each && !origin.parameter; each = each->outer)
      if (const auto* notes = dynamic_cast<const Notes*>(each->notes.get())) origin.parameter = notes->parameter;
    if (!origin.parameter && !op.engine && op.grad) {
      origin.parameter = last_parameter_;
      origin.after_parameter = true;
    }
  }
  return origin;
}

bool NanTrace::allocated_within(const RunningOp& op, const at::Tensor& tensor) const {
  const void* storage = storage_of(tensor);
  bool within = false;
  for (const RunningOp* outer = op.outer; outer && !outer->node; outer = outer->outer) {
    const auto* notes = dynamic_cast<const Notes*>(outer->notes.get());
    // A record without a schema is a named part of the program's code, whose tensors can come from anywhere.
    if (!notes || outer->collective() || !outer->handle()) continue;
    for (const Notes::Input& input : notes->inputs)
      if (storage_of(input.tensor) == storage) return false;
    within = true;
  }
  return within;
}

size_t NanTrace::origin_of_input(const RunningOp& op, const at::Tensor& tensor, const BadValues& bad,
                                 const std::string& what) {
  if (const Taint* known = taint_of(tensor)) return known->origin;
  BadOrigin origin = describe(op);
  // Operators allocate their results without a record, and may call others on them (a view) before they write them.
  origin.kind = allocated_within(op, tensor) ? BadOrigin::Kind::kUnset : BadOrigin::Kind::kOutside;
  origin.nan = bad.nan > 0;
  origin.inputs = {{.argument = what,
                    .text = fmt::format("{} in {}", shape_text(tensor), range_text(tensor)),
                    .identity = tensor.unsafeGetTensorImpl()}};
  origin.output = finding_tensor(what, tensor);
  const size_t number = add_origin(std::move(origin));
  taint(tensor, number);
  return number;
}

void NanTrace::backward_begins(const RunningOp& node) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == graph_task_) return;
  graph_task_ = task;
  // The first node is that of the loss.
  const auto bad = bad_outputs_.find({node.thread, node.sequence});
  if (bad != bad_outputs_.end()) reach(bad->second, BadOrigin::Reached::kLoss);
}

void NanTrace::mark_read(const at::Tensor& tensor) {
  for (Kept& kept : kept_)
    if (kept.tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl()) kept.read = true;
}

void NanTrace::before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) {
  ++count_;
  if (decided()) return;
  auto notes = std::make_unique<Notes>();
  notes->serial = ++serial_;
  if (op.node) {
    backward_begins(op);
    const at::Tensor parameter = accumulated_parameter();
    if (parameter.defined()) parameters_.add(parameter);
    for (const c10::IValue& value : inputs)
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        const BadValues bad = parameter.defined() ? bad_values(tensor) : BadValues{};
        if (!bad.any()) return;
        reach(origin_of_input(op, float_values(tensor), bad, "gradient"), BadOrigin::Reached::kGradient,
              parameter.unsafeGetTensorImpl());
      });
    op.notes = std::move(notes);
    return;
  }
  notes->ignored = ignored_class(op, inputs);
  notes->in_place = writes_in_place(op);
  // All arguments are read in one pass. Those that are not checked are left out.
  std::vector<at::Tensor> checked;
  for (const c10::IValue& value : inputs)
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      at::Tensor values = float_values(tensor);
      if (!values.defined()) return;
      const bool look = op.collective() ? taint_of(values) != nullptr : !leaves_memory_unset(op.name);
      checked.push_back(look ? std::move(values) : at::Tensor());
    });
  const std::vector<BadValues> found = bad_values(checked);
  size_t next = 0, argument = 0;
  for (const c10::IValue& value : inputs) {
    notes->bad_number = notes->bad_number || is_bad_number(value);
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (is_parameter(tensor)) parameters_.add(tensor);
      if (!notes->parameter && is_parameter(tensor)) notes->parameter = tensor.unsafeGetTensorImpl();
      const at::Tensor values = float_values(tensor);
      if (!values.defined()) {
        // Targets, indices and masks are never bad themselves, but can explain bad values.
        if (!op.collective() && has_integer_values(tensor))
          notes->inputs.push_back({.tensor = tensor,
                                   .argument = argument,
                                   .bad = {},
                                   .origin = 0,
                                   .range = notes->in_place ? range_text(tensor) : std::string()});
        return;
      }
      const BadValues bad = found[next++];
      if (op.collective()) {
        // The values arrive when the collective ends, which is not known here.
        if (!bad.any()) {
          BadOrigin origin = describe(op);
          origin.kind = BadOrigin::Kind::kCollective;
          origin.op = op.name.substr(6, op.name.find_last_not_of('_') + 1 - 6);
          taint(values, add_origin(std::move(origin)));
        }
        return;
      }
      Notes::Input input{.tensor = values, .argument = argument, .bad = bad, .origin = 0, .range = {}};
      if (input.bad.any() && overwrites(op, argument)) {
        input.bad = {};
        mark_read(tensor);
      }
      if (input.bad.any()) {
        input.origin = origin_of_input(op, values, input.bad, fmt::format("argument {}", argument));
        mark_read(tensor);
        const BadOrigin& origin = origins_[input.origin];
        if (op.name == "_local_scalar_dense" && input.bad.nan > 0 && origin.kind != BadOrigin::Kind::kDesign)
          reach(input.origin, BadOrigin::Reached::kNumber);
      }
      if (notes->in_place && !input.bad.any()) input.range = range_text(values);
      notes->inputs.push_back(std::move(input));
    });
    ++argument;
  }
  if (notes->parameter && !op.engine && op.grad) last_parameter_ = notes->parameter;
  const void* parameter = notes->parameter;
  for (const RunningOp* each = op.outer; each && !each->node && !parameter; each = each->outer)
    if (const auto* outer = dynamic_cast<const Notes*>(each->notes.get())) parameter = outer->parameter;
  forward_.add(op, parameter, count_);
  op.notes = std::move(notes);
}

void NanTrace::judge_output(RunningOp& op, const Notes& notes, const at::Tensor& output, const BadValues& bad) {
  const at::Tensor tensor = float_values(output);
  if (!tensor.defined() || leaves_memory_unset(op.name)) {
    // The content is arbitrary, and counts only if it is read before it is written.
    if (tensor.defined() && bad.any()) {
      BadOrigin origin = describe(op);
      origin.kind = BadOrigin::Kind::kUnset;
      origin.output = finding_tensor("output", tensor);
      taint(tensor, add_origin(std::move(origin)));
    }
    return;
  }
  if (!bad.any()) {
    // All of the memory has been written, so the old content is gone.
    if (const Taint* old = taint_of(tensor); old && origins_[old->origin].kind == BadOrigin::Kind::kUnset &&
                                             static_cast<size_t>(tensor.nbytes()) == tensor.storage().nbytes())
      taints_.erase(storage_of(tensor));
    return;
  }
  const auto settle = [&](size_t origin) {
    taint(tensor, origin);
    if (op.sequence >= 0 && op.grad) bad_outputs_[{op.thread, op.sequence}] = origin;
    if (notes.in_place && !op.engine)
      if (const at::Tensor parameter = parameters_.find(output); parameter.defined())
        reach(origin, BadOrigin::Reached::kParameter, parameter.unsafeGetTensorImpl());
    if (kept_.size() < kMostKept && !op.outer && origins_[origin].kind == BadOrigin::Kind::kMade)
      kept_.push_back(
          {c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>(output.getIntrusivePtr()), origin, false});
  };
  const Taint* known = taint_of(tensor);
  // A kernel has now written the memory that was allocated for it.
  if (known && origins_[known->origin].kind == BadOrigin::Kind::kUnset) known = nullptr;
  if (known && known->serial > notes.serial) {  // an operator that this one called has been judged
    settle(known->origin);
    return;
  }
  const Notes::Input* with_nan = nullptr;
  const Notes::Input* with_inf = nullptr;
  for (const Notes::Input& input : notes.inputs) {
    if (input.bad.nan > 0 && !with_nan) with_nan = &input;
    if (input.bad.nan == 0 && input.bad.inf > 0 &&
        (!with_inf || (origins_[input.origin].kind == BadOrigin::Kind::kMade &&
                       origins_[with_inf->origin].kind != BadOrigin::Kind::kMade)))
      with_inf = &input;
  }
  if (with_nan) return settle(with_nan->origin);
  if (with_inf && bad.nan == 0) return settle(with_inf->origin);
  if (with_inf && origins_[with_inf->origin].kind == BadOrigin::Kind::kMade) {
    BadOrigin& origin = origins_[with_inf->origin];
    if (origin.became_nan_in.empty()) origin.became_nan_in = public_name(op.name);
    return settle(with_inf->origin);
  }
  if (known && !with_inf) {  // another part of the same memory was bad before
    bool shares = false;
    for (const Notes::Input& input : notes.inputs) shares = shares || storage_of(input.tensor) == storage_of(tensor);
    if (shares && !notes.in_place) return settle(known->origin);
  }

  BadOrigin origin = describe(op);
  origin.kind = notes.bad_number && !with_inf ? BadOrigin::Kind::kDesign : BadOrigin::Kind::kMade;
  origin.nan = bad.nan > 0;
  origin.of_received = with_inf && (origins_[with_inf->origin].kind == BadOrigin::Kind::kCollective ||
                                    origins_[with_inf->origin].of_received);
  origin.output = finding_tensor("output", tensor);
  origin.output.count = bad.nan > 0 ? bad.nan : bad.inf;
  origin.output.first = first_bad(tensor);
  const auto handle = op.handle();
  for (const Notes::Input& input : notes.inputs) {
    if (overwrites(op, input.argument)) continue;
    BadOrigin::Input described;
    described.argument = handle && input.argument < handle->schema().arguments().size()
                             ? handle->schema().arguments()[input.argument].name()
                             : fmt::format("argument {}", input.argument);
    described.text =
        fmt::format("{} in {}", shape_text(input.tensor), input.range.empty() ? range_text(input.tensor) : input.range);
    if (notes.ignored && described.argument == "target" && has_integer_values(input.tensor))
      described.text += fmt::format(", {} of {} ignored (ignore_index {})",
                                    input.tensor.detach().eq(*notes.ignored).sum().item<int64_t>(),
                                    input.tensor.numel(), *notes.ignored);
    described.identity = input.tensor.unsafeGetTensorImpl();
    origin.inputs.push_back(std::move(described));
  }
  settle(add_origin(std::move(origin)));
}

void NanTrace::after(RunningOp& op, const std::vector<c10::IValue>& outputs) {
  const auto* notes = dynamic_cast<const Notes*>(op.notes.get());
  if (!notes || op.node || op.collective() || decided()) return;
  std::vector<at::Tensor> written;
  for (const c10::IValue& value : outputs)
    for_each_tensor(value, [&](const at::Tensor& tensor) { written.push_back(tensor); });
  // Operators on lists of tensors that return nothing have written their inputs.
  if (outputs.empty() && op.name.starts_with("_foreach"))
    for (const Notes::Input& input : notes->inputs) written.push_back(input.tensor);
  const std::vector<BadValues> bad = bad_values(written);
  for (size_t i = 0; i < written.size(); ++i) judge_output(op, *notes, written[i], bad[i]);
}

void NanTrace::shown(const at::Tensor& tensor) {
  const at::Tensor values = float_values(tensor);
  if (decided() || !values.defined()) return;
  const BadValues bad = bad_values(values);
  const Taint* known = bad.any() ? taint_of(values) : nullptr;
  if (!known) return;
  const BadOrigin& origin = origins_[known->origin];
  using Kind = BadOrigin::Kind;
  // Cells also show masks and memory that is not written yet. An Inf that came in may be part of a mask.
  if (origin.kind == Kind::kMade ||
      (bad.nan > 0 && (origin.kind == Kind::kOutside || origin.kind == Kind::kCollective)))
    reach(known->origin, BadOrigin::Reached::kShown);
}

void NanTrace::end(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    const at::Tensor values = float_values(result);
    if (!values.defined() || !bad_values(values).any()) continue;
    if (const Taint* known = taint_of(values)) reach(known->origin, BadOrigin::Reached::kResult);
  }
  // A tensor that the program still has and that no operator has read is a result, too.
  for (const Kept& kept : kept_)
    if (!kept.read && origins_[kept.origin].nan && !kept.tensor.expired())
      reach(kept.origin, BadOrigin::Reached::kHeld);
  kept_.clear();
  taints_.clear();
}

const BadOrigin* NanTrace::first_cause() const {
  const BadOrigin* found = nullptr;
  for (const BadOrigin& origin : origins_) {
    if (origin.reached == BadOrigin::Reached::kNothing) continue;
    const bool from_another = origin.kind == BadOrigin::Kind::kCollective;
    if (!found || (found->kind == BadOrigin::Kind::kCollective && !from_another)) found = &origin;
  }
  return found;
}

int64_t NanTrace::harmless() const {
  return std::count_if(origins_.begin(), origins_.end(), [](const BadOrigin& origin) {
    return origin.kind == BadOrigin::Kind::kMade && origin.reached == BadOrigin::Reached::kNothing;
  });
}

}  // namespace lockstep::inspect
