#include "inspectors/verify/agreement.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "collectives/dist.h"

namespace lockstep::inspect {

QueuedAgreement::QueuedAgreement(const at::Tensor& numbers) {
  const at::NoGradGuard no_grad;
  const int64_t count = numbers.numel();
  // The greatest of the complements is the complement of the least.
  at::Tensor both = at::cat({numbers, numbers.bitwise_not()});
  dist::all_reduce(both, dist::ReduceOp::MAX);
  const at::Tensor differ = both.narrow(0, 0, count).ne(both.narrow(0, count, count).bitwise_not()).any().reshape({1});
  if (differ.is_cpu()) {
    differ_ = differ;
    return;
  }
  differ_ = at::empty({1}, at::TensorOptions().dtype(at::kBool).pinned_memory(true));
  differ_.copy_(differ, /*non_blocking=*/true);
  arrived_.emplace(differ.device().type());
  arrived_->record(c10::impl::VirtualGuardImpl(differ.device().type()).getStream(differ.device()));
}

bool QueuedAgreement::read() const {
  if (arrived_) arrived_->synchronize();
  return !*differ_.const_data_ptr<bool>();
}

}  // namespace lockstep::inspect
