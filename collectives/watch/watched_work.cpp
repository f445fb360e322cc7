#include "collectives/watch/watched_work.h"

#include <ATen/record_function.h>

#include <thread>

#include "protocol/dist_error.h"

namespace lockstep::dist {

using log_layout::EntryState;

namespace {
/// Where a transport's work has an error, it counts as complete.
StreamEnd end_of(c10d::Work& work) {
  if (!work.isCompleted()) return StreamEnd::none;
  return work.exception() ? StreamEnd::failed : StreamEnd::done;
}
}  // namespace

WatchedWork::WatchedWork(std::shared_ptr<WatchedGroup> group, Entered entered, c10d::OpType type,
                         c10::intrusive_ptr<c10d::Work> inner, std::function<void()> finally,
                         std::vector<at::Tensor> results, bool reports, OnDevice on_device)
    : c10d::Work(-1, type),
      group_(std::move(group)),
      entered_(entered),
      on_device_(false),
      point_to_point_(type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE),
      inner_(std::move(inner)),
      device_(on_device.reached ? on_device.device : std::nullopt),
      finally_(std::move(finally)),
      results_(std::move(results)) {
  if (device_) {
    group_->device_progress().add(
        entered_.entry, {group_->slot(), on_device.peer},
        {.reached = std::move(on_device.reached), .end = [inner = inner_] { return end_of(*inner); }});
    return;
  }
  if (!reports) return;
  inner_->getFuture()->addCallback(
      [group = group_, entered](c10::ivalue::Future& future) {
        group->finish(entered, future.hasError() ? EntryState::failed : EntryState::done);
      },
      /*uses_future=*/false);
}

WatchedWork::WatchedWork(std::shared_ptr<WatchedGroup> group, Entered entered, c10d::OpType type,
                         c10::intrusive_ptr<c10d::Work> inner, std::function<void()> finally,
                         std::vector<at::Tensor> results, std::shared_ptr<DeviceOperation> operation)
    : c10d::Work(-1, type),
      group_(std::move(group)),
      entered_(entered),
      on_device_(true),
      point_to_point_(false),
      inner_(std::move(inner)),
      finally_(std::move(finally)),
      results_(std::move(results)),
      operation_(std::move(operation)) {}

void WatchedWork::complete() {
  if (!completed_ && group_->lost_writes()) fail(nullptr);
  if (finally_) {
    std::call_once(finally_once_, [this] {
      const at::DisableRecordFunctionGuard part_of_the_collective;  // and no operator of the program's
      finally_();
      finally_queued_ = StreamPoint(results_);
    });
    finally_queued_.wait_on_current_streams();  // it may have run for another waiter, on that one's stream
  }
  if (on_device_) return;  // queued in the caller's stream; its end is reported
  log_end();
  completed_ = true;
}

// A wait on a device returns when the caller's stream waits, which can be long before the device is done. From then on
// an event on that stream answers for the work, whose tensors are not kept any longer than without Lockstep.
void WatchedWork::log_end() {
  if (device_ && !completed_ && end_of(*inner_) == StreamEnd::none) {
    if (auto passed = mark_stream(*device_)) {
      group_->device_progress().set_end(
          entered_.entry, [passed = std::move(passed)] { return passed() ? StreamEnd::done : StreamEnd::none; });
      return;
    }
  }
  group_->finish(entered_, EntryState::done);
}

void WatchedWork::check_device() {
  if (!operation_ || !operation_->failed()) return;
  std::lock_guard lock(failure_mutex_);
  if (failure_) std::rethrow_exception(failure_);
  try {
    group_->fail(*operation_);
  } catch (...) {  // kept for whoever asks next
    failure_ = std::current_exception();
    throw;
  }
}

void WatchedWork::wait_on_device(std::chrono::milliseconds limit) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  check_device();
  try {
    if (limit == kNoTimeout) {
      inner_->wait();  // a barrier's makes the host wait
    } else {
      // The transport's own wait with a limit ends the group when the limit passes.
      inner_->synchronize();
      const auto end = std::chrono::steady_clock::now() + limit;
      while (!inner_->isCompleted()) {
        check_device();
        if (std::chrono::steady_clock::now() >= end) not_done(limit);
        std::this_thread::sleep_for(kPause);
      }
      if (const auto error = inner_->exception()) std::rethrow_exception(error);
    }
  } catch (const TimedOut&) {
    throw;
  } catch (const Error&) {  // of check_device()
    throw;
  } catch (...) {  // becomes what it means
    check_device();
    fail(std::current_exception());
  }
  check_device();
  complete();
}

void WatchedWork::fail(std::exception_ptr error) {
  std::lock_guard lock(failure_mutex_);
  if (failure_) std::rethrow_exception(failure_);
  try {
    group_->fail(entered_, error);
  } catch (...) {  // kept for whoever asks next
    failure_ = std::current_exception();
    throw;
  }
}

void WatchedWork::not_done(std::chrono::milliseconds limit) const {
  throw TimedOut("the work is not done after " + std::to_string(limit.count()) +
                     " ms. It goes on: wait again, or give wait() more time",
                 {});
}

bool WatchedWork::failed() const {
  std::lock_guard lock(failure_mutex_);
  return failure_ != nullptr;
}

bool WatchedWork::wait(std::chrono::milliseconds timeout) {
  if (timeout.count() < 0)
    throw ArgumentError("wait(" + std::to_string(timeout.count()) +
                        " ms): a time limit is not negative; 0 is the group's");
  if (on_device_) {
    wait_on_device(timeout);
    return true;
  }
  if (point_to_point_) return wait_point_to_point(timeout);
  bool result = false;
  try {
    result = inner_->wait(timeout);
  } catch (...) {  // becomes what it means
    if (timeout != kNoTimeout && !inner_->isCompleted()) not_done(timeout);
    fail(std::current_exception());
  }
  complete();
  return result;
}

// Gloo's send and recv can be waited for once, by one thread. They know no limit of the group's, and one that passes
// ends every connection of the group.
bool WatchedWork::wait_point_to_point(std::chrono::milliseconds limit) {
  std::shared_ptr<Completion> known = limit == kNoTimeout ? nullptr : completion();
  if (!known) {
    std::lock_guard lock(waiting_mutex_);
    known = completion_;
    if (!known && !completed_) {
      if (failed()) fail(nullptr);
      try {
        inner_->wait(group_->identity().timeout);
      } catch (...) {  // becomes what it means
        fail(std::current_exception());
      }
      complete();
    }
  }
  if (!known) return true;
  if (!known->wait(limit)) not_done(limit);
  if (const auto error = known->error()) fail(error);
  complete();
  return true;
}

std::shared_ptr<Completion> WatchedWork::completion() const {
  std::unique_lock lock(waiting_mutex_, std::try_to_lock);
  if (!lock || completed_ || failed()) return nullptr;
  if (!completion_) completion_ = std::make_shared<Completion>(inner_, group_->identity().timeout);
  return completion_;
}

bool WatchedWork::isCompleted() {
  if (completed_ || failed()) return true;
  if (point_to_point_) {
    const auto known = completion();
    if (!known) return completed_ || failed();
    if (!known->done()) return false;
    if (!known->error() && !group_->lost_writes()) complete();
    return true;
  }
  if (operation_ && operation_->failed()) return true;
  if (!inner_->isCompleted()) return false;
  if (on_device_) {
    if (isSuccess()) complete();
    return true;
  }
  if (inner_->isSuccess() && !group_->lost_writes()) complete();
  return true;
}

bool WatchedWork::isSuccess() const {
  if (failed()) return false;
  // NCCL's work does not answer isSuccess().
  if (on_device_) return !(operation_ && operation_->failed()) && inner_->isCompleted() && !inner_->exception();
  if (!point_to_point_) return inner_->isSuccess();
  if (completed_) return true;
  const auto known = completion();
  return known && known->done() && !known->error();
}

std::exception_ptr WatchedWork::exception() const {
  std::exception_ptr error;
  {
    std::lock_guard lock(failure_mutex_);
    if (failure_) return failure_;
  }
  if (!point_to_point_) {
    error = inner_->exception();
  } else if (const auto known = completion()) {
    error = known->error();
  }
  if (!error) return error;
  try {
    const_cast<WatchedWork*>(this)->fail(error);  // translating is remembered, nothing else changes
  } catch (...) {
    return std::current_exception();
  }
}

std::vector<at::Tensor> WatchedWork::result() {
  if (!isCompleted()) throw Error("the work is not done, so that it has no result yet; call wait() first");
  if (const auto error = exception()) std::rethrow_exception(error);
  return results_;
}

void WatchedWork::blockCurrentStream() {
  if (!on_device_) return synchronize();
  inner_->blockCurrentStream();
  complete();
}

void WatchedWork::synchronize() {
  try {
    inner_->synchronize();
  } catch (...) {  // becomes what it means
    check_device();
    fail(std::current_exception());
  }
  if (on_device_) {
    check_device();
    return complete();
  }
  if (inner_->isCompleted() && inner_->isSuccess()) complete();
}

c10::intrusive_ptr<c10::ivalue::Future> WatchedWork::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> inner;
  if (!point_to_point_) {
    inner = inner_->getFuture();
  } else if (const auto known = completion()) {
    inner = known->future();
  } else {  // somebody waits for it, or has
    std::lock_guard lock(waiting_mutex_);
    inner = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (completed_)
      inner->markCompleted(std::vector<at::Tensor>());
    else
      inner->setError(exception());
  }
  return inner->then(
      [self = c10::intrusive_ptr<WatchedWork>::reclaim_copy(this)](c10::ivalue::Future& future) -> c10::IValue {
        if (future.hasError()) self->fail(future.exception_ptr());
        self->complete();
        return self->results_.empty() ? future.constValue() : c10::IValue(self->results_);
      },
      results_.empty() ? inner->elementType() : c10::TypePtr(c10::ListType::create(c10::TensorType::get())));
}

}  // namespace lockstep::dist
