// A communication hook is a callable that takes over the reduction of a bucket of gradients.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::ddp {

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

}  // namespace lockstep::ddp
