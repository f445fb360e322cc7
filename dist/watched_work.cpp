#include "dist/watched_work.h"

#include "dist/errors.h"

namespace lockstep::dist {

using log_layout::EntryState;

WatchedWork::WatchedWork(std::shared_ptr<WatchedGroup> group, Entered entered, c10d::OpType type,
                         c10::intrusive_ptr<c10d::Work> inner, std::function<void()> finally, bool reports)
    : c10d::Work(-1, type),
      group_(std::move(group)),
      entered_(entered),
      point_to_point_(type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE),
      inner_(std::move(inner)),
      finally_(std::move(finally)) {
  if (!reports) return;
  inner_->getFuture()->addCallback(
      [group = group_, entered](c10::ivalue::Future& future) {
        group->finish(entered, future.hasError() ? EntryState::failed : EntryState::done);
      },
      /*uses_future=*/false);
}

void WatchedWork::complete() {
  if (!completed_ && group_->lost_writes()) fail(std::make_exception_ptr(Error("Connection closed by peer")));
  if (finally_) std::call_once(finally_once_, finally_);
  group_->finish(entered_, EntryState::done);
  completed_ = true;
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

bool WatchedWork::wait(std::chrono::milliseconds timeout) {
  bool result = false;
  // Gloo's send and recv know no limit of the group's: without one they take that of connecting.
  const auto limit = timeout == kNoTimeout && point_to_point_ ? group_->identity().timeout : timeout;
  try {
    result = inner_->wait(limit);
  } catch (...) {  // becomes what it means
    if (timeout != kNoTimeout && !inner_->isCompleted()) {
      throw TimedOut("the work is not done after " + std::to_string(timeout.count()) +
                         " ms. It goes on: wait again, or give wait() more time",
                     {});
    }
    fail(std::current_exception());
  }
  complete();
  return result;
}

bool WatchedWork::isCompleted() {
  if (!inner_->isCompleted()) return false;
  if (inner_->isSuccess() && !group_->lost_writes()) complete();
  return true;
}

std::exception_ptr WatchedWork::exception() const {
  const std::exception_ptr error = inner_->exception();
  if (!error) return error;
  try {
    const_cast<WatchedWork*>(this)->fail(error);  // translating is remembered, nothing else changes
  } catch (...) {
    return std::current_exception();
  }
}

void WatchedWork::synchronize() {
  inner_->synchronize();
  if (inner_->isCompleted() && inner_->isSuccess()) complete();
}

c10::intrusive_ptr<c10::ivalue::Future> WatchedWork::getFuture() {
  auto inner = inner_->getFuture();
  return inner->then(
      [self = c10::intrusive_ptr<WatchedWork>::reclaim_copy(this)](c10::ivalue::Future& future) -> c10::IValue {
        if (future.hasError()) self->fail(future.exception_ptr());
        self->complete();
        return future.constValue();
      },
      inner->elementType());
}

}  // namespace lockstep::dist
