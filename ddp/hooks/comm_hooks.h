// PyTorch's communication hooks under PyTorch's names. A hook is made with its state and given to register_comm_hook:
//   net.register_comm_hook(ddp::fp16_compress_hook());
//   net.register_comm_hook(ddp::bf16_compress_wrapper(ddp::powerSGD_hook(state)));
// `group`: the ranks to reduce over; empty: the default group.
#pragma once
#include <cstdint>

#include "ddp/hooks/comm_hook.h"

namespace lockstep::ddp {

/// Takes the mean over the ranks, as without a hook.
CommHook allreduce_hook(c10::intrusive_ptr<c10d::ProcessGroup> group = {});
/// Takes the mean over the ranks, sent and added up as 16-bit floats (sparse gradients in full). Half has 11
/// significant bits, up to 65504.
CommHook fp16_compress_hook(c10::intrusive_ptr<c10d::ProcessGroup> group = {});
/// Does the same in brain floats, which have 8 significant bits and the range of float.
CommHook bf16_compress_hook(c10::intrusive_ptr<c10d::ProcessGroup> group = {});
/// Gives `hook` a bucket of 16-bit floats, and casts its result back. A sparse bucket goes to it in full.
CommHook fp16_compress_wrapper(CommHook hook);
CommHook bf16_compress_wrapper(CommHook hook);
/// Does not communicate, so replicas diverge. It serves to measure the cost of communication.
CommHook noop_hook();

namespace detail {

/// Returns the group, or the default group where it is empty.
c10::intrusive_ptr<c10d::ProcessGroup> group_or_default(const c10::intrusive_ptr<c10d::ProcessGroup>& group);
/// Takes the mean of `tensor` over `group`, in place. It divides first, so that sums of 16-bit floats do not overflow.
GradFuture mean_over_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const torch::Tensor& tensor);
GradFuture completed(const torch::Tensor& value);
/// Returns the smallest `mine` of any rank, sent on `device`. Collective; waits.
int64_t least_over_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int64_t mine, torch::Device device);

}  // namespace detail
}  // namespace lockstep::ddp
