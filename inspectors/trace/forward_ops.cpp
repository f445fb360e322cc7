#include "inspectors/trace/forward_ops.h"

namespace lockstep::inspect {

constexpr size_t kMostOps = 100'000;
constexpr size_t kMostOfOneNumber = 16;

void ForwardOps::add(const RunningOp& op, const void* parameter, int64_t number) {
  if (op.node || op.sequence < 0 || !op.grad) return;
  auto& same = ops_[{op.thread, op.sequence}];
  // Operators that make no node share the number of the next one that does, which is the last.
  if (same.size() == kMostOfOneNumber)
    same.erase(same.begin());
  else
    ++count_;
  same.push_back({.name = op.name, .site = op.site, .parameter = parameter, .number = number});
  while (count_ > kMostOps) {
    count_ -= ops_.begin()->second.size();
    ops_.erase(ops_.begin());
  }
}

const ForwardOp* ForwardOps::find(const RunningOp& node) const {
  const auto found = ops_.find({node.thread, node.sequence});
  if (found == ops_.end()) return nullptr;
  for (auto op = found->second.rbegin(); op != found->second.rend(); ++op)
    if (is_backward_of(node.name, op->name)) return &*op;
  return nullptr;
}

}  // namespace lockstep::inspect
