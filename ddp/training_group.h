// The ranks that train together: their process group, and the small collectives that the wrapper itself needs over it.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>

namespace lockstep::ddp::detail {

class TrainingGroup {
 public:
  /// A null `group` is the default group. Throws ArgumentError if this rank is not in it.
  explicit TrainingGroup(c10::intrusive_ptr<c10d::ProcessGroup> group);

  const c10::intrusive_ptr<c10d::ProcessGroup>& get() const { return group_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  void exchange(c10::intrusive_ptr<c10d::ProcessGroup> group);
  /// Sets where tensors of the collectives below are made.
  void set_device(torch::Device device) { device_ = device; }

  /// Whether the ranks were reconnected (dist::regroup) since the last call of follow_regroup(): reductions of before
  /// never end.
  bool was_regrouped() const;
  void follow_regroup();

  // These are collective.
  c10::intrusive_ptr<c10d::Work> all_reduce(torch::Tensor& tensor, c10d::ReduceOp op = c10d::ReduceOp::SUM) const;
  double sum(double mine) const;
  int64_t least(int64_t mine) const;
  /// Returns the largest of the ranks that pass `candidate`, or -1 if none does.
  int largest_rank(bool candidate) const;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int rank_ = 0;
  int size_ = 1;
  int64_t generation_ = 0;  // of the group's connections
  torch::Device device_ = torch::kCPU;
};

}  // namespace lockstep::ddp::detail
