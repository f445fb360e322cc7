// Reports operators as they run: at::RecordFunction reports each one, forward and backward, before and after it runs,
// and an observer looks at its inputs and outputs.
//
// Traced are all operators of the dispatcher that the tracing thread calls, including those that other operators and
// backward nodes call, and autograd's nodes, including those on the threads that autograd has for devices. Not traced
// are other threads of the program, and code that accesses memory without an operator.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "inspectors/trace/call_site.h"

namespace lockstep::inspect {

/// Data of an observer about an operator while it runs.
struct OpNotes {
  virtual ~OpNotes() = default;
};

/// An operator, or a node of autograd, that runs now.
struct RunningOp : at::ObserverContext {
  const at::RecordFunction* record = nullptr;
  std::string name;  // "log_softmax", "c10d::allreduce_", "SqrtBackward0"
  bool node = false;  // a node of autograd
  bool engine = false;  // autograd's engine runs: backward
  bool grad = false;  // a graph is made
  /// Sequence number in the graph: of a node its own, of an operator that of the node that it makes; -1: none. Counted
  /// per thread: `thread` is the one on which forward ran.
  int64_t sequence = -1;
  uint64_t thread = 0;
  CallSite site;  // of the outermost operator; empty within a node
  RunningOp* outer = nullptr;  // the operator or node that called it
  std::unique_ptr<OpNotes> notes;

  /// Returns the node that called it, directly or not; null in forward and in hooks.
  const RunningOp* backward_node() const;
  /// Returns the outermost operator that called it, or itself; not beyond a node.
  const RunningOp& outermost() const;
  /// Returns the operator as the dispatcher has it, with its schema; nothing for a node, and for a part of a program that
  /// has a record of its own.
  std::optional<c10::OperatorHandle> handle() const;
  bool collective() const { return name.starts_with("c10d::"); }
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  /// Called before the operator runs. `inputs` are valid during the call only.
  virtual void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) = 0;
  /// Called after the operator has run, or has thrown; then without outputs. Nodes have no outputs here.
  virtual void after(RunningOp& op, const std::vector<c10::IValue>& outputs) = 0;
};

struct OpTraceOptions {
  bool operators = true;
  bool nodes = true;
  bool inputs = true;  // of operators; nodes always have theirs
  bool outputs = true;
  bool sites = true;
  /// The observer calls operators only where it has made an Unrecorded. Otherwise each of its calls has one, which costs
  /// some microseconds, more than an observer that seldom looks.
  bool observer_is_unrecorded = false;
};

/// While it lives, operators of this thread reach no callback, and make no graph.
struct Unrecorded {
  at::RecordFunctionGuard unrecorded{false};
  c10::AutoGradMode no_grad{false};
};

/// Reports the operators of the calling thread to `observer` until it is destroyed, on the same thread. One call of the
/// observer at a time; operators that the observer itself calls are not reported. At most 64 exist at once in a
/// process; throws std::runtime_error for more.
class OpTrace {
 public:
  OpTrace(std::shared_ptr<OpObserver> observer, OpTraceOptions options);
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

 private:
  size_t slot_;
  std::vector<at::CallbackHandle> handles_;
};

/// Calls `call` for the tensors in an argument or a result, also for those in lists; not for undefined ones.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& call);

/// Whether it is a leaf of the graph that requires a gradient.
bool is_parameter(const at::Tensor& tensor);

/// Finds parameters by their memory: some optimizers write them through an alias (Tensor::data()).
class SeenParameters {
 public:
  void add(const at::Tensor& parameter);
  /// Returns the parameter that `tensor` is, or is a complete alias of; undefined for any other tensor.
  at::Tensor find(const at::Tensor& tensor) const;
  /// Returns those that still live, in the order in which they were added first.
  std::vector<at::Tensor> all();
  /// Returns those of them that were written since they were added, or since the last call, by their version counters.
  std::vector<at::Tensor> take_written();

 private:
  struct Seen {
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> parameter;
    size_t place;
    uint32_t version;
  };
  std::vector<at::Tensor> living(const std::function<bool(Seen&, const at::TensorImpl&)>& choose);

  std::unordered_map<const void*, Seen> by_storage_;
};

/// Keeps the address of the memory from being used for another tensor, but does not keep the memory.
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
inline WeakStorage weak_storage_of(const at::Tensor& tensor) { return tensor.storage().getWeakStorageImpl(); }

/// Returns the parameter whose gradient the running node accumulates; undefined for other nodes.
at::Tensor accumulated_parameter();

/// Whether a node ("AddmmBackward0") belongs to an operator ("addmm"), by their names.
bool is_backward_of(const std::string& node, const std::string& op);

}  // namespace lockstep::inspect
