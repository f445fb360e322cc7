// Who is calling: set by the functions of dist:: (and by DistributedDataParallel) around a call into c10d, read by the watched
// backend when it logs the collective. Per thread, nests.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>

#include "dist/collective_op.h"

namespace lockstep::dist {

class CallContext {
 public:
  /// `site`: return address in the caller's code; the outermost context's counts. `described`: the caller's tensor, where what is sent is a view of it in
  /// another dtype. `op`: what the caller called, where the backend is asked for something else.
  explicit CallContext(const void* site, const at::Tensor* described = nullptr, const CollectiveOp* op = nullptr)
      : site_(current_ && current_->site_ ? current_->site_ : reinterpret_cast<uint64_t>(site)),
        described_(described),
        op_(op),
        outer_(current_) {
    current_ = this;
  }
  ~CallContext() { current_ = outer_; }
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  static const CallContext* current() { return current_; }
  uint64_t site() const { return site_; }
  const at::Tensor* described() const { return described_; }
  const CollectiveOp* op() const { return op_; }

 private:
  static thread_local const CallContext* current_;
  uint64_t site_;
  const at::Tensor* described_;
  const CollectiveOp* op_;
  const CallContext* outer_;
  const at::NoGradGuard no_grad_;  // a collective is no operator of autograd's, whatever its tensors are
};

}  // namespace lockstep::dist
