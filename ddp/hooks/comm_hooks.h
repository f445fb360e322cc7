// PyTorch's communication hooks under PyTorch's names. A hook is made with its state and given to register_comm_hook:
//   net.register_comm_hook(ddp::fp16_compress_hook());
//   net.register_comm_hook(ddp::bf16_compress_wrapper(ddp::powerSGD_hook(state)));
// `group`: the ranks to reduce over; empty: the default group.
#pragma once
#include <torch/torch.h>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::ddp {

/// The gradients that the Reducer reduces in one piece.
struct Bucket {
  size_t index;  // in the order of reduction
  /// Names of its parameters and their indices in the Reducer stand in the bucket's order.
  std::vector<std::string> parameters;
  std::vector<size_t> parameter_indices;
  int64_t bytes;
};

using GradBucket = c10d::GradBucket;
/// It resolves to one tensor of the bucket's size.
using GradFuture = c10::intrusive_ptr<c10::ivalue::Future>;

/// Takes a bucket whose buffer holds this rank's gradients, not yet divided, and returns a future of the flat tensor
/// that becomes the gradients. It is called on every rank in the same order, within backward.
struct CommHook {
  CommHook(std::string hook_name, std::function<GradFuture(GradBucket&)> hook, std::function<void()> on_restart = {})
      : name(std::move(hook_name)), run(std::move(hook)), restart(std::move(on_restart)) {}

  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, CommHook> && std::is_invocable_r_v<GradFuture, F&, GradBucket&>)
  CommHook(F&& hook) : name("custom"), run(std::forward<F>(hook)) {}  // NOLINT: a lambda is a hook

  /// This name stands in logging_data().
  std::string name;
  std::function<GradFuture(GradBucket&)> run;
  /// Called on every rank when the wrapper starts afresh: reset(), update_process_group(), the first forward after a
  /// regroup. The buckets are those of the first step again, so state that is kept by bucket no longer fits, and the
  /// step that failed may have called `run` on some ranks only. Local. May be empty.
  std::function<void()> restart;
};

/// Synchronises buffers instead of the broadcast from rank 0. Takes named buffers in the module's order, and may return
/// futures of work that still runs: the end of backward waits for them.
using BufferCommHook =
    std::function<std::vector<GradFuture>(const std::vector<std::pair<std::string, torch::Tensor>>& named_buffers)>;

enum class BufferCommHookLocation { kPreForward, kPostForward };

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
