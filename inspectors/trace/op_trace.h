// Operators as they run: at::RecordFunction tells of each, forward and backward, before it runs and after; an observer
// looks at what it reads and writes.
//
// What is seen: every operator of the dispatcher that the tracing thread calls, also those that others call on its
// behalf (a composite operator, a backward node), and autograd's nodes themselves, also on the threads that autograd
// has for devices. What is not: work on the program's own threads, and code that touches memory without an operator.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "inspectors/trace/call_site.h"

namespace lockstep::inspect {

/// What an observer keeps with an operator while it runs.
struct OpNotes {
  virtual ~OpNotes() = default;
};

/// An operator, or a node of autograd, that runs now.
struct RunningOp : at::ObserverContext {
  const at::RecordFunction* record = nullptr;
  std::string name;  // "log_softmax", "c10d::allreduce_", "SqrtBackward0"
  bool node = false;  // autograd's
  bool engine = false;  // autograd's engine runs: backward
  bool grad = false;  // a graph is made
  /// Of the graph: of an operator the number that the node which it makes will have, of a node its own; -1: none.
  /// Counted per thread: `thread` is the one on which forward ran.
  int64_t sequence = -1;
  uint64_t thread = 0;
  CallSite site;  // of the outermost operator around it; empty within a node
  RunningOp* outer = nullptr;  // that called it
  std::unique_ptr<OpNotes> notes;

  /// The node that it works for; null in forward and in hooks.
  const RunningOp* backward_node() const;
  /// The outermost operator around it, itself included; not beyond a node.
  const RunningOp& outermost() const;
  bool collective() const { return name.starts_with("c10d::"); }
};

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  /// The operator has not run yet. `inputs` go away when this returns.
  virtual void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) = 0;
  /// It has run; or thrown, then without outputs. Nodes have no outputs here.
  virtual void after(RunningOp& op, const std::vector<c10::IValue>& outputs) = 0;
};

struct OpTraceOptions {
  bool operators = true;
  bool nodes = true;
  bool inputs = true;  // of operators; nodes always have theirs
  bool outputs = true;
  bool sites = true;
};

/// Tells `observer` of what this thread runs, until it ends, on the same thread. One call of the observer at a time;
/// operators that the observer itself calls are not told. At most 64 at once in a process; throws std::runtime_error
/// beyond.
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

/// The tensors in an argument or a result: itself, or those of a list; undefined ones left out.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& call);

/// Whether it is a leaf of the graph that gradients are wanted of.
bool is_parameter(const at::Tensor& tensor);

/// Parameters that have been seen, by their memory: optimizers write some of them through an alias (Tensor::data()).
class SeenParameters {
 public:
  void add(const at::Tensor& parameter);
  /// The parameter that `tensor` is, or is an alias of as a whole; undefined for any other tensor.
  at::Tensor find(const at::Tensor& tensor) const;

 private:
  std::unordered_map<const void*, c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> by_storage_;
};

/// Keeps the memory's address from being given to another tensor, though not the memory.
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
inline WeakStorage weak_storage_of(const at::Tensor& tensor) { return tensor.storage().getWeakStorageImpl(); }

/// The parameter whose gradient the node that runs now adds up; undefined for other nodes.
at::Tensor accumulated_parameter();

/// Whether a node of that name ("AddmmBackward0") belongs to that operator ("addmm").
bool is_backward_of(const std::string& node, const std::string& op);

}  // namespace lockstep::inspect
