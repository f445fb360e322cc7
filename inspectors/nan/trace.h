// Finds the first bad value (NaN or Inf) of a traced run: which operator made it from finite inputs, and which result
// it reached. Bad values that reach no result (a masked -inf, the branch that `where` does not select) are no findings.
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

/// Says where bad values come from.
struct BadOrigin {
  enum class Kind {
    kMade,  // by an operator from finite inputs (NaN: from inputs without NaN)
    kDesign,  // requested: full(-inf), masked_fill(…, -inf)
    kUnset,  // memory that was never written
    kOutside,  // in a tensor that no traced operator wrote
    kCollective,  // received from another rank
  };
  enum class Reached {
    kNothing,
    kLoss,
    kGradient,  // of reached_identity
    kParameter,  // reached_identity
    kNumber,  // that the program read
    kShown,  // a value that the cell showed
    kHeld,  // a tensor that the program still has
    kResult,  // that the step returned
  };
  struct Input {
    std::string argument;  // "self"
    std::string text;  // "float32 [8, 10] in [-3.2, 88.1]"
    const void* identity = nullptr;
  };

  Kind kind = Kind::kMade;
  bool nan = false;
  bool of_received = false;  // NaN, from an Inf that came from another rank
  int64_t number = 0;  // of the operator in the trace, from 1
  std::string op;  // "log_softmax"
  std::string within;  // "cross_entropy_loss": the operator that the program called, if another one did the work
  std::string node;  // "SqrtBackward0", in backward
  ForwardOp forward;  // in backward, if it is known
  bool engine = false, grad = false;  // as in RunningOp
  CallSite site;
  const void* parameter = nullptr;  // findings name the operator by the module of this parameter
  bool after_parameter = false;  // the operator reads no parameter: `parameter` is the last one that was read
  FindingTensor output;
  std::vector<Input> inputs;
  std::string became_nan_in;  // the operator that made NaN of the Inf
  Reached reached = Reached::kNothing;
  const void* reached_identity = nullptr;  // of the parameter
};

class NanTrace : public OpObserver {
 public:
  void before(RunningOp& op, c10::ArrayRef<c10::IValue> inputs) override;
  void after(RunningOp& op, const std::vector<c10::IValue>& outputs) override;

  /// Notes that the cell shows `tensor`, which is therefore a result.
  void shown(const at::Tensor& tensor);
  /// Ends the trace. `results` are what the step returned.
  void end(const std::vector<at::Tensor>& results);
  /// Returns the first origin of bad values that reached a result, or null; values that this rank made come before
  /// received ones.
  const BadOrigin* first_cause() const;
  /// Returns the number of operators that made bad values which reached no result.
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
  /// Whether an operator that called `op` has allocated the memory of `tensor`: no caller has it as an input.
  bool allocated_within(const RunningOp& op, const at::Tensor& tensor) const;
  void mark_read(const at::Tensor& tensor);  // in kept_
  BadOrigin describe(const RunningOp& op) const;
  void judge_output(RunningOp& op, const Notes& notes, const at::Tensor& output, const BadValues& bad);
  void reach(size_t origin, BadOrigin::Reached what, const void* identity = nullptr);
  void backward_begins(const RunningOp& node);
  void taint(const at::Tensor& tensor, size_t origin);
  const Taint* taint_of(const at::Tensor& tensor) const;
  bool decided() const { return decided_; }

  std::vector<BadOrigin> origins_;
  std::unordered_map<const void*, Taint> taints_;  // by storage; looked up only for bad values
  std::map<std::pair<uint64_t, int64_t>, size_t> bad_outputs_;  // of forward: thread and sequence number → origin
  std::vector<Kept> kept_;
  ForwardOps forward_;
  SeenParameters parameters_;
  uint64_t serial_ = 0;
  int64_t count_ = 0;
  int graph_task_ = -1;  // of the last backward
  const void* last_parameter_ = nullptr;
  bool decided_ = false;
};

}  // namespace lockstep::inspect
