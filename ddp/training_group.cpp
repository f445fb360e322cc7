#include "ddp/training_group.h"

#include <string>
#include <utility>

#include "collectives/rank_context.h"
#include "ddp/hooks/comm_hooks.h"
#include "ddp/hooks/default_group.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {
namespace {

std::string outside_text(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!dist::is_initialized()) return "DistributedDataParallel: this rank is not in the process group";
  return "DistributedDataParallel: rank " + std::to_string(dist::get_rank()) + " is not in group " +
         dist::get_group_name(group) + " (ranks " + RankSet(dist::get_process_group_ranks(group)).str() +
         "). Wrap the module on those ranks only: if (dist::get_rank(group) >= 0)";
}

}  // namespace

TrainingGroup::TrainingGroup(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  exchange(group_or_default(group));
  if (rank_ < 0) throw ArgumentError(outside_text(group_));
  follow_regroup();
}

void TrainingGroup::exchange(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  group_ = std::move(group);
  rank_ = group_->getRank();
  size_ = group_->getSize();
}

bool TrainingGroup::was_regrouped() const {
  return dist::group_of_now(group_) != group_ || generation_ != dist::get_generation(group_);
}

void TrainingGroup::follow_regroup() {
  if (auto now = dist::group_of_now(group_); now != group_) exchange(std::move(now));
  generation_ = dist::get_generation(group_);
}

c10::intrusive_ptr<c10d::Work> TrainingGroup::all_reduce(torch::Tensor& tensor, c10d::ReduceOp op) const {
  std::vector<torch::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  return group_->allreduce(tensors, options);
}

double TrainingGroup::sum(double mine) const {
  auto sum = torch::full({1}, mine, torch::TensorOptions(device_));
  all_reduce(sum)->wait();
  return sum.item<double>();
}

int64_t TrainingGroup::least(int64_t mine) const { return least_over_ranks(group_, mine, device_); }

int TrainingGroup::largest_rank(bool candidate) const {
  auto chosen = torch::full({1}, candidate ? rank_ : -1, torch::TensorOptions(device_).dtype(torch::kLong));
  all_reduce(chosen, c10d::ReduceOp::MAX)->wait();
  return static_cast<int>(chosen.item<int64_t>());
}

}  // namespace lockstep::ddp::detail
