// Makes work of a transport that can only be waited for (Gloo's send and recv) like other work. A thread waits for it,
// so that other threads can ask whether it is done, wait with a limit, and be called when it is done.
#pragma once
#include <ATen/core/ivalue.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::dist {

class Completion {
 public:
  /// Nobody else may wait for `work` from now on, and that for `limit` at most. The thread may outlive this object.
  Completion(c10::intrusive_ptr<c10d::Work> work, std::chrono::milliseconds limit);

  bool done() const;
  /// Returns false when it is not done after `limit`; zero means no limit.
  bool wait(std::chrono::milliseconds limit) const;
  /// Returns what went wrong; null while it is not done, and where nothing did.
  std::exception_ptr error() const;
  /// Holds an empty list of tensors, or the error where there is one.
  const c10::intrusive_ptr<c10::ivalue::Future>& future() const { return state_->future; }

 private:
  struct State {
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace lockstep::dist
