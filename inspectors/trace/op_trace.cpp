#include "inspectors/trace/op_trace.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep::inspect {
namespace {

// Callbacks are functions without user data, and autograd passes them on to its threads. So each trace has functions of
// its own, one pair for each slot.
constexpr size_t kSlots = 64;

struct Slot {
  std::mutex mutex;  // held while the observer is called
  std::shared_ptr<OpObserver> observer;
  OpTraceOptions options;
  std::thread::id thread;  // that is traced
};

std::array<Slot, kSlots> slots;
std::mutex slots_mutex;
std::array<bool, kSlots> taken{};
size_t next_slot = 0;

thread_local std::array<RunningOp*, kSlots> innermost{};

std::shared_ptr<OpObserver> observer_of(Slot& slot) {
  const std::lock_guard lock(slot.mutex);
  return slot.observer;
}

thread_local bool in_observer = false;

/// While the observer runs, its own operators are not reported.
class Calling {
 public:
  explicit Calling(Slot& slot) : lock_(slot.mutex) {
    if (!slot.options.observer_is_unrecorded) unrecorded_.emplace();
    in_observer = true;
  }
  ~Calling() { in_observer = false; }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

 private:
  const std::lock_guard<std::mutex> lock_;
  std::optional<Unrecorded> unrecorded_;
};

template <size_t N>
std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& record) {
  if (in_observer) return nullptr;
  Slot& slot = slots[N];
  const auto observer = observer_of(slot);
  if (!observer) return nullptr;
  // The engine records each of its tasks; the nodes in it are reported themselves.
  if (std::string_view(record.name()).starts_with("autograd::engine::")) return nullptr;
  auto op = std::make_unique<RunningOp>();
  op->record = &record;
  op->name = record.name();
  if (op->name.starts_with("aten::")) op->name.erase(0, 6);
  op->node = record.scope() == at::RecordScope::BACKWARD_FUNCTION;
  op->engine = torch::autograd::get_current_graph_task_id() >= 0;
  // The threads of a process group inherit the callbacks, and call operators to reduce sparse tensors, at any time.
  if (!op->node && !op->engine && std::this_thread::get_id() != slot.thread) return nullptr;
  op->grad = c10::GradMode::is_enabled();
  op->sequence = record.seqNr();
  op->thread = op->node ? record.forwardThreadId() : record.threadId();
  op->outer = innermost[N];
  if (op->outer)
    op->site = op->outer->site;
  else if (slot.options.sites && !op->node)
    op->site = capture_call_site();
  {
    const Calling calling(slot);
    observer->before(*op, record.inputs());
  }
  innermost[N] = op.get();
  return op;
}

template <size_t N>
void after(const at::RecordFunction& record, at::ObserverContext* context) {
  auto* op = static_cast<RunningOp*>(context);
  if (!op) return;
  Slot& slot = slots[N];
  innermost[N] = op->outer;
  const auto observer = observer_of(slot);
  if (!observer) return;
  const Calling calling(slot);
  observer->after(*op, record.outputs());
}

struct Callbacks {
  at::RecordFunctionCallback::StartCallback before;
  at::RecordFunctionCallback::EndCallback after;
};

template <size_t... N>
constexpr std::array<Callbacks, sizeof...(N)> callbacks_of(std::index_sequence<N...>) {
  return {Callbacks{&before<N>, &after<N>}...};
}

const std::array<Callbacks, kSlots> callbacks = callbacks_of(std::make_index_sequence<kSlots>());

std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

}  // namespace

const RunningOp* RunningOp::backward_node() const {
  for (const RunningOp* op = this; op; op = op->outer)
    if (op->node) return op;
  return nullptr;
}

const RunningOp& RunningOp::outermost() const {
  const RunningOp* op = this;
  while (op->outer && !op->outer->node) op = op->outer;
  return *op;
}

std::optional<c10::OperatorHandle> RunningOp::handle() const {
  const auto operator_name = record->operator_name();
  return operator_name ? c10::Dispatcher::singleton().findSchema(*operator_name) : std::nullopt;
}

OpTrace::OpTrace(std::shared_ptr<OpObserver> observer, OpTraceOptions options) {
  {
    const std::lock_guard lock(slots_mutex);
    // Slots are used in turn, since a graph that still exists may have the functions of an earlier trace.
    size_t tried = 0;
    while (taken[next_slot % kSlots] && ++tried < kSlots) ++next_slot;
    if (taken[next_slot % kSlots])
      throw std::runtime_error("inspect: 64 traces of operators run already in this process");
    slot_ = next_slot++ % kSlots;
    taken[slot_] = true;
  }
  {
    const std::lock_guard lock(slots[slot_].mutex);
    slots[slot_].observer = std::move(observer);
    slots[slot_].options = options;
    slots[slot_].thread = std::this_thread::get_id();
  }
  innermost[slot_] = nullptr;
  const Callbacks& mine = callbacks[slot_];
  const auto add = [&](at::RecordScope scope, bool inputs, bool outputs) {
    handles_.push_back(at::addThreadLocalCallback(
        at::RecordFunctionCallback(mine.before, mine.after).needsInputs(inputs).needsOutputs(outputs).scopes({scope})));
  };
  if (options.operators) add(at::RecordScope::FUNCTION, options.inputs, options.outputs);
  if (options.nodes) add(at::RecordScope::BACKWARD_FUNCTION, true, false);
}

OpTrace::~OpTrace() {
  for (const at::CallbackHandle handle : handles_) at::removeCallback(handle);
  std::shared_ptr<OpObserver> last;  // destroyed when no lock is held
  {
    const std::lock_guard lock(slots[slot_].mutex);
    last = std::move(slots[slot_].observer);
    slots[slot_].observer = nullptr;
  }
  const std::lock_guard lock(slots_mutex);
  taken[slot_] = false;
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& call) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) call(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) for_each_tensor(each, call);
  } else if (value.isTuple()) {
    for (const c10::IValue& each : value.toTupleRef().elements()) for_each_tensor(each, call);
  }
}

bool is_parameter(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() && tensor.is_leaf() && tensor.requires_grad();
}

void SeenParameters::add(const at::Tensor& parameter) {
  if (!parameter.has_storage()) return;
  const void* storage = parameter.storage().unsafeGetStorageImpl();
  const auto known = by_storage_.find(storage);
  by_storage_.insert_or_assign(
      storage,
      Seen{.parameter = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>(parameter.getIntrusivePtr()),
           .place = known == by_storage_.end() ? by_storage_.size() : known->second.place,
           .version = parameter.unsafeGetTensorImpl()->version_counter().current_version()});
}

at::Tensor SeenParameters::find(const at::Tensor& tensor) const {
  if (is_parameter(tensor)) return tensor;
  if (!tensor.defined() || !tensor.has_storage()) return {};
  const auto found = by_storage_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == by_storage_.end()) return {};
  auto held = found->second.parameter.lock();
  if (!held) return {};
  const at::Tensor parameter(std::move(held));
  const bool complete = parameter.defined() && parameter.has_storage() &&
                        parameter.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl() &&
                        parameter.sizes() == tensor.sizes() && parameter.storage_offset() == tensor.storage_offset();
  return complete ? parameter : at::Tensor();
}

std::vector<at::Tensor> SeenParameters::living(const std::function<bool(Seen&, const at::TensorImpl&)>& choose) {
  std::vector<std::pair<size_t, at::Tensor>> chosen;
  for (auto& [storage, seen] : by_storage_)
    if (auto held = seen.parameter.lock(); held && choose(seen, *held))
      chosen.emplace_back(seen.place, std::move(held));
  std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<at::Tensor> result;
  for (auto& each : chosen) result.push_back(std::move(each.second));
  return result;
}

std::vector<at::Tensor> SeenParameters::all() {
  return living([](const Seen&, const at::TensorImpl&) { return true; });
}

std::vector<at::Tensor> SeenParameters::take_written() {
  return living([](Seen& seen, const at::TensorImpl& parameter) {
    const uint32_t version = parameter.version_counter().current_version();
    return std::exchange(seen.version, version) != version;
  });
}

at::Tensor accumulated_parameter() {
  const auto node = torch::autograd::get_current_node();
  const auto* accumulator = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  return accumulator ? accumulator->variable : at::Tensor();
}

bool is_backward_of(const std::string& node, const std::string& op) {
  const size_t end = node.find("Backward");
  const std::string left = letters_of(std::string_view(node).substr(0, end));
  const std::string right = letters_of(std::string_view(op).substr(0, op.find('.')));
  if (left.empty() || right.empty()) return false;
  return left.starts_with(right) || right.starts_with(left);
}

}  // namespace lockstep::inspect
