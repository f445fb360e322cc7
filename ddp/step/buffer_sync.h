// Decides when the buffers of a wrapper are made equal, and by what: the broadcast from rank 0, or a hook.
#pragma once
#include <utility>

#include "ddp/hooks/comm_hooks.h"

namespace lockstep::ddp::detail {

class BufferSync {
 public:
  void set_hook(BufferCommHook hook, BufferCommHookLocation location) {
    hook_ = std::move(hook);
    location_ = location;
  }
  /// Returns an empty hook for the broadcast.
  const BufferCommHook& hook() const { return hook_; }
  BufferCommHookLocation location() const { return hook_ ? location_ : BufferCommHookLocation::kPreForward; }

  /// Whether the last forward announced a reduction. Only then the next one begins with equal buffers.
  bool last_forward_was_reduced() const { return last_forward_was_reduced_; }
  void set_last_forward_was_reduced(bool reduced) { last_forward_was_reduced_ = reduced; }
  /// Whether a forward has run since the buffers were made equal. Each rank writes them from its own batch.
  bool may_differ() const { return may_differ_; }
  void set_may_differ(bool differ) { may_differ_ = differ; }

 private:
  BufferCommHook hook_;
  BufferCommHookLocation location_ = BufferCommHookLocation::kPreForward;
  bool last_forward_was_reduced_ = true;
  bool may_differ_ = false;
};

}  // namespace lockstep::ddp::detail
