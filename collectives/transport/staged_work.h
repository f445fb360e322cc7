// The work of one collective whose tensors go through host memory.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "collectives/transport/streams.h"

namespace lockstep::dist {

/// StagedError is thrown for waiting for a peer, as Gloo's errors are.
struct StagedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Copies below autograd: a collective leaves no trace in the graph, and no version of a tensor is counted up, as it is
/// where Gloo writes to memory itself.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below;
  at::NoGradGuard no_grad;
};

class StagedWork;

/// Holds the works that are not done. It is shared with what interrupts them, from any thread.
class StagedWorks {
 public:
  /// Returns false where works were interrupted and this one has failed.
  bool add(const c10::intrusive_ptr<StagedWork>& work);
  void remove(const StagedWork* work);
  /// Lets all works fail, present and future ones, also while a stream has yet to reach their inputs.
  void interrupt() noexcept;

 private:
  std::mutex mutex_;
  bool interrupted_ = false;
  std::map<const StagedWork*, c10::weak_intrusive_ptr<StagedWork>> works_;
};

/// The work of one collective. Has Gloo's work once it is issued; done when the copies of its results are queued.
class StagedWork : public c10d::Work {
 public:
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;  // to, from

  /// `stream` is where results are copied back; none without tensors of a device.
  StagedWork(c10d::OpType type, std::shared_ptr<StagedWorks> works, std::optional<c10::Stream> stream, Copies results)
      : c10d::Work(-1, type),
        works_(std::move(works)),
        stream_(stream),
        copies_(std::move(results)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()),
            stream ? std::vector<c10::Device>{stream->device()} : std::vector<c10::Device>())) {}

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;

  /// The host waits until the copies are queued: a stream can't wait for what Gloo has yet to do.
  void synchronize() override { wait(kNoTimeout); }

  int sourceRank() const override;
  void abort() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  /// Gloo has `work`; null where it is done.
  void issued(c10::intrusive_ptr<c10d::Work> work);

  void fail(std::exception_ptr error);
  /// The first part of fail(), without callbacks on the future. Returns false where the work is done or has failed.
  bool free_waiters(std::exception_ptr error);
  void set_future_error(std::exception_ptr error) { future_->setError(std::move(error)); }

 private:
  /// Returns true once.
  bool settle();

  void block_current_stream();
  void complete();
  void copy_back();

  const std::shared_ptr<StagedWorks> works_;
  const std::optional<c10::Stream> stream_;
  const Copies copies_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10d::Work> issued_;  // of Gloo
  bool point_to_point_ = false;
  bool settled_ = false;  // it has failed, or its results are being copied back
  EventPtr copied_back_;
};

}  // namespace lockstep::dist
