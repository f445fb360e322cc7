#include "inspectors/trace/op_record.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/function_schema.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>

#include "inspectors/trace/op_divisor.h"
#include "inspectors/trace/op_writes.h"
#include "inspectors/trace/program_log.h"
#include "inspectors/trace/step_reductions.h"
#include "inspectors/trace/tensor_values.h"

namespace lockstep::inspect {
namespace {

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

uint64_t folded(const Hash& hash) { return combine(hash, hash)[0]; }

/// Has the memory of a tensor, obtained without running an operator: of a sparse tensor its values and indices; none
/// for other layouts.
using Parts = c10::SmallVector<at::Tensor, 2>;
Parts parts_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || dispatches_in_python(tensor)) return {};
  if (tensor.layout() == at::kSparse) {
    const auto* sparse = static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    return {sparse->values(), sparse->indices()};
  }
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) return {};
  return {tensor};
}

bool shares_memory(const at::Tensor& one, const at::Tensor& other) {
  const Parts mine = parts_of(one), theirs = parts_of(other);
  return std::any_of(mine.begin(), mine.end(), [&](const at::Tensor& part) {
    return std::any_of(theirs.begin(), theirs.end(),
                       [&](const at::Tensor& each) { return storage_of(part) == storage_of(each); });
  });
}

uint64_t state_of(const at::Generator& generator) {
  at::Generator handle = generator;
  const std::lock_guard lock(handle.mutex());
  return folded(fingerprint(handle.get_state()).hash);
}

/// Whether an argument of this name follows from the sizes of the data: `size`, `split_sizes`, `normalized_shape`.
bool is_size(const std::string& name) {
  return name.find("size") != std::string::npos || name.find("shape") != std::string::npos || name == "repeats";
}

std::optional<dist::CollectiveRecord> logged(uint64_t entry) {
  const auto log = program_log();
  return log ? dist::CollectiveLogReader(log->mapping()).record(entry) : std::nullopt;
}

/// Describes an argument that is no tensor: its bits, and a number or a text to show.
struct PlainValue {
  uint64_t hash = 0;
  double number = 0;
  std::string text;  // of a text, a list or None
};

template <typename Numbers>
PlainValue plain_list(const Numbers& numbers) {
  constexpr size_t kMostShown = 8;
  PlainValue value{.hash = numbers.size(), .text = "["};
  for (size_t i = 0; i < numbers.size(); ++i) {
    value.hash = combine({value.hash, value.hash}, {std::bit_cast<uint64_t>(numbers[i]), 0})[0];
    if (i < kMostShown) value.text += fmt::format("{}{}", i > 0 ? ", " : "", numbers[i]);
  }
  value.text += numbers.size() > kMostShown ? ", ...]" : "]";
  return value;
}

std::optional<PlainValue> plain_value(const c10::IValue& value) {
  if (value.isBool()) return PlainValue{static_cast<uint64_t>(value.toBool()), static_cast<double>(value.toBool()), ""};
  if (value.isInt()) return PlainValue{static_cast<uint64_t>(value.toInt()), static_cast<double>(value.toInt()), ""};
  if (value.isDouble()) return PlainValue{std::bit_cast<uint64_t>(value.toDouble()), value.toDouble(), ""};
  if (value.isIntList()) return plain_list(value.toIntVector());
  if (value.isDoubleList()) return plain_list(value.toDoubleVector());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return PlainValue{folded({std::bit_cast<uint64_t>(number.real()), std::bit_cast<uint64_t>(number.imag())}), 0,
                      fmt::format("{:.9g}{:+.9g}j", number.real(), number.imag())};
  }
  if (value.isString())
    return PlainValue{folded(hash_of(value.toStringRef())), 0, fmt::format("\"{}\"", value.toStringRef())};
  if (value.isNone()) return PlainValue{folded(hash_of("None")), 0, "None"};
  // It is a number in Python's `x * 2.5`.
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().unsafeGetTensorImpl()->is_wrapped_number())
    return plain_value(value.toTensor().item());
  return std::nullopt;
}

/// Returns that for the device of the first tensor; empty where autocast is off.
std::string autocast_dtype(c10::ArrayRef<c10::IValue> inputs) {
  std::optional<c10::DeviceType> device;
  for (const c10::IValue& each : inputs)
    for_each_tensor(each, [&](const at::Tensor& tensor) { device = device.value_or(tensor.device().type()); });
  if (!device || !at::autocast::is_autocast_available(*device) || !at::autocast::is_autocast_enabled(*device))
    return "";
  return dtype_text(at::autocast::get_autocast_dtype(*device));
}

}  // namespace

struct OpRecord::Notes : OpNotes {
  OpEntry entry;
  std::vector<OpMark> inputs;
  std::vector<at::Tensor> tensors;  // of the inputs, held until the operator has run
  uint64_t collectives = 0;  // the number of collectives that had begun before
};

OpRecord::OpRecord(size_t most) : most_(most) {}

int64_t OpRecord::bytes_kept() const {
  return static_cast<int64_t>(entries_.capacity() * sizeof(OpEntry) + marks_.capacity() * sizeof(OpMark) +
                              sites_.capacity() * sizeof(CallSite) +
                              writers_.size() * (sizeof(Writer) + sizeof(c10::StorageImpl)));
}

uint32_t OpRecord::number_of(const std::string& text) {
  const auto [place, is_new] = text_numbers_.emplace(text, texts_.size());
  if (is_new) texts_.push_back(text);
  return place->second;
}

uint32_t OpRecord::number_of(const CallSite& site) {
  const auto [place, is_new] = site_numbers_.emplace(site, sites_.size());
  if (is_new) sites_.push_back(site);
  return place->second;
}

std::string OpRecord::collective_of(int32_t entry) const {
  const auto found = flights_.find(entry);
  return found == flights_.end() ? std::string() : fmt::format("{} #{}", found->second.call.op, found->second.call.seq);
}

int32_t OpRecord::read_too_early() const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const OpEntry& entry = entries_[i];
    if (entry.engine || entry.collective) continue;
    for (size_t k = 0; k < entry.inputs; ++k) {
      const OpMark& mark = inputs(entry)[k];
      if (mark.in_flight && text(entries_[static_cast<size_t>(mark.from)].name) == "c10d::allreduce_")
        return static_cast<int32_t>(i);
    }
  }
  return -1;
}

bool OpRecord::in_flight(int32_t entry) {
  const auto found = flights_.find(entry);
  if (found == flights_.end() || found->second.completed) return false;
  const auto now = logged(found->second.call.entry);
  found->second.completed = !now || now->state != dist::CollectiveState::entered;
  return !found->second.completed;
}

OpMark OpRecord::mark(const at::Tensor& tensor, size_t argument) {
  OpMark mark;
  mark.argument = static_cast<uint16_t>(argument);
  mark.dtype = static_cast<uint8_t>(tensor.scalar_type());
  if (const at::Tensor parameter = parameters_.find(tensor); parameter.defined()) {
    mark.kind = OpMark::Kind::kParameter;
    mark.identity = parameter.unsafeGetTensorImpl();
  }
  bool first = true;
  for (const at::Tensor& part : parts_of(tensor)) {
    const auto writer = writers_.find(storage_of(part));
    if (writer != writers_.end()) {
      mark.from = std::max(mark.from, writer->second.entry);
      if (writer->second.unset) return mark;  // the content is arbitrary
      // This is checked before the memory is read. On a GPU the stream waits for the collective, not this thread.
      mark.in_flight = mark.in_flight || (part.device().is_cpu() && in_flight(writer->second.entry));
      integer_reductions_.look(writer->second.entry);
    }
    const Fingerprint found = fingerprint(part);
    mark.hash = first ? folded(found.hash) : combine({mark.hash, mark.hash}, found.hash)[0];
    if (first) mark.norm = found.norm;
    first = false;
  }
  return mark;
}

std::optional<OpMark> OpRecord::mark_of_plain(const c10::IValue& value, const c10::FunctionSchema* schema,
                                              size_t argument) {
  const auto plain = plain_value(value);
  if (!plain) return std::nullopt;
  OpMark mark;
  mark.kind = OpMark::Kind::kNumber;
  mark.argument = static_cast<uint16_t>(argument);
  mark.hash = plain->hash;
  mark.norm = plain->number;
  const std::string name = schema && argument < schema->arguments().size() ? schema->arguments()[argument].name() : "";
  mark.name = number_of(name);
  mark.value = number_of(plain->text);
  mark.setting = !value.isIntList() || !is_size(name);
  return mark;
}

void OpRecord::before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) {
  // Operators that other operators call are not recorded, except those that a backward node calls.
  if (op.node || (op.outer && !op.outer->node)) return;
  if (entries_.size() >= most_) {
    ++count_;
    return;
  }
  auto notes = std::make_unique<Notes>();
  OpEntry& entry = notes->entry;
  entry.name = number_of(op.name);
  entry.engine = op.engine;
  entry.grad = op.grad;
  entry.autocast = number_of(autocast_dtype(inputs));
  entry.collective = op.collective();
  const auto handle = op.handle();
  const c10::FunctionSchema* schema = handle ? &handle->schema() : nullptr;
  entry.random = handle && handle->hasTag(at::Tag::nondeterministic_seeded);
  if (op.grad && !op.engine) entry.divisor = divisor_of(op, inputs);
  if (const int task = torch::autograd::get_current_graph_task_id(); op.engine && task != graph_task_) {
    graph_task_ = task;
    ++backwards_;
  }
  CallSite site = op.site;
  if (const RunningOp* node = op.backward_node()) {
    entry.node = number_of(node->name);
    if (const ForwardOp* forward = forward_.find(*node)) {
      entry.forward = static_cast<int32_t>(forward->number);
      entry.parameter = forward->parameter;
      site = forward->site;
    }
  } else {
    entry.hook = op.engine && !entry.collective;
  }
  entry.site = number_of(site);
  size_t argument = 0;
  for (const c10::IValue& value : inputs) {
    if (const auto plain = mark_of_plain(value, schema, argument)) {
      notes->inputs.push_back(*plain);
    } else if (!value.isGenerator()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (is_parameter(tensor)) parameters_.add(tensor);
        if (tensor.defined() && !tensor.is_meta() && parts_of(tensor).empty()) entry.unread = true;
        notes->inputs.push_back(mark(tensor, argument));
        if (overwrites(op, argument)) notes->inputs.back().hash = 0;
        notes->inputs.back().shape = number_of(fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", ")));
        notes->tensors.push_back(tensor);
        if (is_parameter(tensor) && !entry.parameter && !entry.node) entry.parameter = tensor.unsafeGetTensorImpl();
      });
    }
    ++argument;
  }
  if (entry.collective) {
    notes->collectives = collectives_so_far();
    if (notes->tensors.size() == 1)
      integer_reductions_.begins(static_cast<int32_t>(entries_.size()), op.name, notes->tensors[0], site);
  }
  if (entry.random) {
    // The generator is an input like others.
    OpMark mark;
    mark.kind = OpMark::Kind::kGenerator;
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    for (const c10::IValue& value : inputs)
      if (value.isGenerator() && value.toGenerator().defined()) generator = value.toGenerator();
    if (generator.device().is_cpu()) mark.hash = state_of(generator);
    notes->inputs.push_back(mark);
  }
  if (!entry.node && !op.engine && op.grad) {
    if (entry.parameter)
      last_parameter_ = entry.parameter;
    else
      entry.parameter = last_parameter_, entry.after_parameter = true;
  }
  op.notes = std::move(notes);
}

void OpRecord::after(RunningOp& op, const std::vector<c10::IValue>& outputs) {
  auto* notes = dynamic_cast<Notes*>(op.notes.get());
  if (!notes) {
    // This operator may make the node, but the operator that called it is the one that is recorded.
    if (!op.node) forward_.add(op, nullptr, static_cast<int64_t>(entries_.size()));
    return;
  }
  OpEntry& entry = notes->entry;
  ++count_;
  const auto number = static_cast<int32_t>(entries_.size());
  entry.first = static_cast<uint32_t>(marks_.size());
  entry.inputs = static_cast<uint16_t>(std::min<size_t>(notes->inputs.size(), std::numeric_limits<uint16_t>::max()));
  marks_.insert(marks_.end(), notes->inputs.begin(), notes->inputs.begin() + entry.inputs);
  size_t next = 0;
  for (const OpMark& input : notes->inputs)
    if (input.kind == OpMark::Kind::kTensor || input.kind == OpMark::Kind::kParameter) {
      if (updates_statistic(op.name, input.argument)) write(notes->tensors[next], number, false);
      ++next;
    }
  const bool unset = leaves_memory_unset(op.name), in_place = writes_in_place(op);
  size_t written = 0;
  bool one_number = false;  // it may be a loss
  const auto is_view = [&](const at::Tensor& tensor) {
    return !unset && !in_place &&
           std::any_of(notes->tensors.begin(), notes->tensors.end(),
                       [&](const at::Tensor& input) { return shares_memory(input, tensor); });
  };
  const auto add_output = [&](const at::Tensor& tensor) {
    // A view writes nothing: the writer of its memory is that of the tensor that it is a view of.
    if (!is_view(tensor)) write(tensor, number, unset);
    if (entry.collective || written == std::numeric_limits<uint16_t>::max()) return;
    one_number = written == 0 && tensor.numel() == 1;
    OpMark mark = this->mark(tensor, written++);
    mark.shape = number_of(fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", ")));
    if (mark.kind == OpMark::Kind::kParameter && in_place && !op.engine) entry.writes_parameter = true;
    marks_.push_back(mark);
  };
  for (const c10::IValue& value : outputs) for_each_tensor(value, add_output);
  if (outputs.empty())
    for (const at::Tensor& tensor : notes->tensors) add_output(tensor);
  else if (entry.collective)
    for (const at::Tensor& tensor : notes->tensors) write(tensor, number, false);
  entry.outputs = static_cast<uint16_t>(written);
  if (!one_number) entry.divisor = 0;
  if (entry.collective) {
    const auto call = collectives_so_far() > notes->collectives ? logged(notes->collectives) : std::nullopt;
    if (call) flights_[number].call = *call;
    integer_reductions_.began(number, call);
  }
  entries_.push_back(entry);
  forward_.add(op, entry.parameter, number);
}

void OpRecord::write(const at::Tensor& tensor, int32_t entry, bool unset) {
  for (const at::Tensor& part : parts_of(tensor))
    writers_.insert_or_assign(storage_of(part), Writer{weak_storage_of(part), entry, unset});
}

std::vector<uint32_t> OpRecord::relevant() const {
  if (std::any_of(entries_.begin(), entries_.end(), std::mem_fn(&OpEntry::is_effect)))
    return relevant_for(entries_.size());
  std::vector<uint32_t> result;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].hook) result.push_back(static_cast<uint32_t>(i));
  return result;
}

std::vector<uint32_t> OpRecord::relevant_for(size_t effects) const {
  std::vector<bool> needed(entries_.size(), false);
  for (size_t i = 0; i < entries_.size() && effects > 0; ++i)
    if (entries_[i].is_effect()) needed[i] = true, --effects;
  for (size_t i = entries_.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const OpEntry& entry = entries_[i];
    if (entry.forward >= 0) needed[static_cast<size_t>(entry.forward)] = true;
    for (size_t k = 0; k < entry.inputs; ++k)
      if (const int32_t from = inputs(entry)[k].from; from >= 0) needed[static_cast<size_t>(from)] = true;
  }
  std::vector<uint32_t> result;
  for (size_t i = 0; i < entries_.size(); ++i)
    if (needed[i] && !entries_[i].hook) result.push_back(static_cast<uint32_t>(i));
  return result;
}

}  // namespace lockstep::inspect
