// Says who called a collective. The functions of dist:: (and of DistributedDataParallel) set it around a call into
// c10d, and the watched backend reads it when it logs the collective. Where there is one, the arguments have been
// checked. Each thread has its own; contexts nest.
#pragma once
#include <ATen/core/grad_mode.h>

#include <cstdint>

namespace lockstep::dist {

class CallContext {
 public:
  /// `site` is the return address in the caller's code; the outermost context's counts. `waits`: the caller waits for a
  /// send or recv at once, which c10d does not pass on.
  explicit CallContext(const void* site, bool waits = false)
      : site_(current_ && current_->site_ ? current_->site_ : reinterpret_cast<uint64_t>(site)),
        waits_(waits),
        outer_(current_) {
    current_ = this;
  }
  ~CallContext() { current_ = outer_; }
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  static const CallContext* current() { return current_; }
  uint64_t site() const { return site_; }
  bool waits() const { return waits_; }

 private:
  static thread_local const CallContext* current_;
  uint64_t site_;
  const bool waits_;
  const CallContext* outer_;
  const at::NoGradGuard no_grad_;  // autograd records no collective
};

}  // namespace lockstep::dist
