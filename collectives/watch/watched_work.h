// The watched backend returns this work: the transport's, with errors that name what happened, the time at which it was
// done in the log, and the last step of operations that the transport does not have (dividing for AVG, unpacking for
// all_to_all).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "collectives/transport/libtorch_version.h"
#include "collectives/transport/streams.h"
#include "collectives/watch/completion.h"
#include "collectives/watch/stream_mark.h"
#include "collectives/watch/watched_group.h"

namespace lockstep::dist {

/// A collective that a device does, with what says that the caller's stream has come to it (mark_stream). Without that
/// it is logged as the host's: done when the wait for it returns.
struct OnDevice {
  std::optional<c10::Device> device;  // none: the host does it
  std::function<bool()> reached;
  int peer = -1;  // of a message
};

class WatchedWork : public c10d::Work {
 public:
  /// `finally` (may be empty) runs once, after the transport is done and before anyone learns of it. `results` are the
  /// caller's tensors. `reports`: the transport's future is asked to log the completion, also when nobody waits. That
  /// is not done on a device, whose future is complete as soon as its stream has the work: DeviceProgress asks there.
  WatchedWork(std::shared_ptr<WatchedGroup> group, Entered entered, c10d::OpType type,
              c10::intrusive_ptr<c10d::Work> inner, std::function<void()> finally, std::vector<at::Tensor> results,
              bool reports, OnDevice on_device = {});

  /// The work of a transport that queues its operations on a device, where `operation` is reported; null: it was
  /// coalesced with others. wait() and synchronize() make the caller's current stream wait for it, and not the host;
  /// what that stream is given next finds the result.
  WatchedWork(std::shared_ptr<WatchedGroup> group, Entered entered, c10d::OpType type,
              c10::intrusive_ptr<c10d::Work> inner, std::function<void()> finally, std::vector<at::Tensor> results,
              std::shared_ptr<DeviceOperation> operation);

  const std::shared_ptr<WatchedGroup>& group() const { return group_; }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return inner_->sourceRank(); }
  /// May be called once it is done.
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  void blockCurrentStream() override;
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return inner_->getFutureResult(); }
  float getDuration() const override { return inner_->getDuration(); }
  uint64_t getSequencenumber() const override { return static_cast<uint64_t>(entered_.seq); }
#if LOCKSTEP_C10D_HAS_WINDOW
  std::chrono::milliseconds getTimeout() const override { return inner_->getTimeout(); }
#endif
#if LOCKSTEP_C10D_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override { return inner_->getCompletionKey(); }
#endif

 private:
  void complete();
  void log_end();
  [[noreturn]] void fail(std::exception_ptr error);
  [[noreturn]] void not_done(std::chrono::milliseconds limit) const;
  bool failed() const;
  bool wait_point_to_point(std::chrono::milliseconds limit);
  void wait_on_device(std::chrono::milliseconds limit);
  /// Throws where the operation was cut off or has failed on its device.
  void check_device();
  /// Returns null while somebody waits for the transport's work, or has waited.
  std::shared_ptr<Completion> completion() const;

  const std::shared_ptr<WatchedGroup> group_;
  const Entered entered_;
  const bool on_device_;
  const bool point_to_point_;  // of Gloo
  const c10::intrusive_ptr<c10d::Work> inner_;
  const std::optional<c10::Device> device_;
  std::function<void()> finally_;
  std::once_flag finally_once_;
  StreamPoint finally_queued_;  // on the streams of whoever ran it
  const std::vector<at::Tensor> results_;
  const std::shared_ptr<DeviceOperation> operation_;
  mutable std::mutex waiting_mutex_;  // held while somebody waits for a send or recv of the transport
  mutable std::shared_ptr<Completion> completion_;
  std::atomic<bool> completed_ = false;
  mutable std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first translation is everyone's
};

}  // namespace lockstep::dist
