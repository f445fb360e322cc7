// The first bad value of what runs while it is traced: which operator made a NaN or an Inf out of finite inputs, and
// where it got to. A bad value that reaches no result (a masked -inf, the branch that a `where` leaves out) is no
// finding.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "inspectors/trace/forward_ops.h"
#include "inspectors/trace/op_trace.h"
#include "inspectors/trace/tensor_names.h"
#include "inspectors/trace/tensor_values.h"

namespace lockstep::inspect {

/// Where bad values began.
struct BadOrigin {
  enum class Kind {
    kMade,  // by an operator, out of finite inputs (NaN: out of inputs without NaN)
    kDesign,  // asked for: full(-inf), masked_fill(…, -inf)
    kUnset,  // memory that was never written
    kOutside,  // read from a tensor that was bad when it came
    kCollective,  // came in from another rank
  };
  struct Input {
    std::string argument;  // "self"
    std::string text;  // "float32 [8, 10] in [-3.2, 88.1]"
    const void* identity = nullptr;
  };

  Kind kind = Kind::kMade;
  bool nan = false;
  int64_t number = 0;  // of the operator in the trace, from 1
  std::string op;  // "log_softmax"
  std::string within;  // "cross_entropy_loss": the operator that was called, where another did the work
  std::string node;  // "SqrtBackward0", in backward
  ForwardOp forward;  // in backward, where it is known
  bool engine = false, grad = false;
  CallSite site;
  const void* parameter = nullptr;  // by whose module it is named
  bool after_parameter = false;  // the operator reads none of its own; `parameter` is of the last that did
  FindingTensor output;
  std::vector<Input> inputs;
  std::string became_nan_in;  // the operator that made NaN out of its Inf
  std::string reached;  // "the loss", "the gradient of %" (a parameter's identity beside it)
  const void* reached_identity = nullptr;
};

class NanTrace : public OpObserver {
 public:
  void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) override;
  void after(RunningOp& op, const std::vector<c10::IValue>& outputs) override;

  /// `tensor` is shown to people: it is a result.
  void shown(const at::Tensor& tensor);
  /// The trace is over. `results`: what the program got out of it.
  void end(const std::vector<at::Tensor>& results);
  /// The earliest origin of bad values that reached a result, one that a rank made itself first; null where all is
  /// well.
  const BadOrigin* culprit() const;
  /// Operators that made bad values which reached no result.
  int64_t harmless() const;
  int64_t operators() const { return count_; }

 private:
  struct Taint {
    WeakStorage storage;
    size_t origin;
    uint64_t serial;
  };
  struct Notes;
  struct Kept {
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    size_t origin;
    bool read = false;
  };

  size_t add_origin(BadOrigin origin);
  size_t origin_of_input(const RunningOp& op, const at::Tensor& tensor, const BadValues& bad, const std::string& what);
  /// Whether `tensor` is memory that an operator around `op` was not given: its own.
  bool allocated_within(const RunningOp& op, const at::Tensor& tensor) const;
  void mark_read(const at::Tensor& tensor);  // of those kept
  BadOrigin describe(const RunningOp& op) const;
  void judge_output(RunningOp& op, const Notes& notes, const at::Tensor& tensor);
  void reach(size_t origin, const std::string& what, const void* identity);
  void backward_begins(const RunningOp& node);
  void taint(const at::Tensor& tensor, size_t origin);
  const Taint* taint_of(const at::Tensor& tensor) const;
  bool decided() const { return decided_; }

  std::vector<BadOrigin> origins_;
  std::unordered_map<const void*, Taint> taints_;  // by storage; looked up only where a value is bad
  std::map<std::pair<uint64_t, int64_t>, size_t> bad_outputs_;  // of forward: thread and sequence number → origin
  std::vector<Kept> kept_;
  ForwardOps forward_;
  SeenParameters parameters_;
  uint64_t serial_ = 0;
  int64_t count_ = 0;
  int graph_task_ = -1;  // whose backward has been seen
  const void* last_parameter_ = nullptr;
  bool decided_ = false;
};

}  // namespace lockstep::inspect
