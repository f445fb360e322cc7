// Finds the forward operator that a node of backward belongs to, by the graph's sequence number, and by name if several
// operators have the same number.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/trace/op_trace.h"

namespace lockstep::inspect {

struct ForwardOp {
  std::string name;
  CallSite site;
  const void* parameter = nullptr;  // that it, or the operator that called it, read; by identity
  int64_t number = 0;  // of the operator in the trace
};

class ForwardOps {
 public:
  /// Adds an operator of forward. The newest 100,000 are kept.
  void add(const RunningOp& op, const void* parameter, int64_t number);
  /// Returns null if it was not recorded (forward ran before the trace, or in an autograd::Function of the program).
  const ForwardOp* find(const RunningOp& node) const;

 private:
  std::map<std::pair<uint64_t, int64_t>, std::vector<ForwardOp>> ops_;  // by thread and sequence number
  size_t count_ = 0;
};

}  // namespace lockstep::inspect
