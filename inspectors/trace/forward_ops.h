// Which forward operator a node of backward belongs to: by the graph's sequence numbers, and by name where several
// operators had the same.
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
  const void* parameter = nullptr;  // that it, or the operator around it, read; by identity
  int64_t number = 0;  // in the trace
};

class ForwardOps {
 public:
  /// An operator of forward begins. The newest 100,000 are kept.
  void add(const RunningOp& op, const void* parameter, int64_t number);
  /// Null where it has not been seen (forward ran before the trace, or by a function of the program's own).
  const ForwardOp* find(const RunningOp& node) const;

 private:
  std::map<std::pair<uint64_t, int64_t>, std::vector<ForwardOp>> ops_;  // by thread and sequence number
  size_t count_ = 0;
};

}  // namespace lockstep::inspect
