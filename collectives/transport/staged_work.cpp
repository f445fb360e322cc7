#include "collectives/transport/staged_work.h"

#include <c10/core/StreamGuard.h>

#include <string>
#include <system_error>
#include <thread>

#include "collectives/transport/streams.h"

namespace lockstep::dist {

using c10d::OpType;

namespace {

std::exception_ptr interrupted() {
  return std::make_exception_ptr(StagedError("the collective was interrupted before its inputs had left the device"));
}

}  // namespace

bool StagedWork::wait(std::chrono::milliseconds timeout) {
  const auto limit = std::chrono::steady_clock::now() + timeout;
  const auto wait_for = [&](std::unique_lock<std::mutex>& lock, const auto& condition) {
    if (timeout == kNoTimeout)
      cv_.wait(lock, condition);
    else if (!cv_.wait_until(lock, limit, condition))
      throw StagedError("the collective is not done after " + std::to_string(timeout.count()) + " ms");
  };
  c10::intrusive_ptr<c10d::Work> issued;
  {
    std::unique_lock lock(mutex_);
    wait_for(lock, [&] { return completed_ || (point_to_point_ && issued_); });
    if (!completed_) issued = issued_;
  }
  if (issued) {  // Gloo's sends and receives have to be waited for
    try {
      issued->wait(timeout);
    } catch (...) {  // for all who ask
      fail(std::current_exception());
    }
    complete();
    std::unique_lock lock(mutex_);  // another thread may be at the copies of the results
    wait_for(lock, [&] { return completed_; });
  }
  if (const auto error = exception()) std::rethrow_exception(error);
  block_current_stream();
  return true;
}

bool StagedWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_ && (exception_ || !copied_back_ || copied_back_->query());
}

int StagedWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  return issued_ ? issued_->sourceRank() : -1;
}

void StagedWork::abort() { fail(interrupted()); }

std::vector<at::Tensor> StagedWork::result() {
  std::vector<at::Tensor> tensors;
  for (const auto& [to, from] : copies_) tensors.push_back(to);
  return tensors;
}

void StagedWork::issued(c10::intrusive_ptr<c10d::Work> work) {
  const OpType type = retrieveOpType();
  const bool point_to_point = type == OpType::SEND || type == OpType::RECV || type == OpType::RECVANYSOURCE;
  {
    const std::lock_guard lock(mutex_);
    issued_ = work;
    point_to_point_ = point_to_point;
  }
  cv_.notify_all();
  if (point_to_point) return;
  if (!work) return complete();
  work->getFuture()->addCallback(
      [self = c10::intrusive_ptr<StagedWork>::reclaim_copy(this)](c10::ivalue::Future& done) {
        if (done.hasError())
          self->fail(done.exception_ptr());
        else
          self->complete();
      },
      /*uses_future=*/false);
}

void StagedWork::fail(std::exception_ptr error) {
  if (free_waiters(error)) future_->setError(error);
}

bool StagedWork::free_waiters(std::exception_ptr error) {
  if (!settle()) return false;
  works_->remove(this);
  finish(std::move(error));
  return true;
}

bool StagedWork::settle() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(settled_, true);
}

void StagedWork::block_current_stream() {
  const std::lock_guard lock(mutex_);
  if (copied_back_) copied_back_->block(current_stream_of(copied_back_->device()));
}

void StagedWork::complete() {
  if (!settle()) return;  // interrupted: nothing is written to the caller's tensors any more
  works_->remove(this);
  std::exception_ptr error;
  c10::OptionalStreamGuard guard;
  if (stream_) {
    guard.reset_stream(*stream_);
    try {
      copy_back();
    } catch (...) {  // of the device
      error = std::current_exception();
    }
  }
  finish(error);
  try {
    if (!error) return future_->markCompleted(result());
  } catch (...) {  // of the device, whose events it records
    error = std::current_exception();
  }
  future_->setErrorIfNeeded(error);
}

void StagedWork::copy_back() {
  const BelowAutograd below;
  for (const auto& [to, from] : copies_)
    if (!to.is_cpu()) at::Tensor(to).copy_(from, /*non_blocking=*/true);
  EventPtr event = record_event(*stream_);
  const std::lock_guard lock(mutex_);
  copied_back_ = std::move(event);
}

bool StagedWorks::add(const c10::intrusive_ptr<StagedWork>& work) {
  {
    const std::lock_guard lock(mutex_);
    works_.emplace(work.get(), work);
    if (!interrupted_) return true;
  }
  work->fail(interrupted());
  return false;
}

void StagedWorks::remove(const StagedWork* work) {
  const std::lock_guard lock(mutex_);
  works_.erase(work);
}

void StagedWorks::interrupt() noexcept {
  std::vector<c10::intrusive_ptr<StagedWork>> outstanding;
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    for (const auto& [key, weak] : works_)
      if (auto work = weak.lock()) outstanding.push_back(std::move(work));
  }
  const std::exception_ptr error = interrupted();
  std::erase_if(outstanding, [&](const auto& each) { return !each->free_waiters(error); });
  if (outstanding.empty()) return;
  // What the program has hung onto the futures may take its time, and the thread that interrupts has to go on.
  const auto freed = std::make_shared<const decltype(outstanding)>(std::move(outstanding));
  const auto set_errors = [freed, error] {
    for (const auto& each : *freed) each->set_future_error(error);
  };
  try {
    std::thread(set_errors).detach();
  } catch (const std::system_error&) {  // the process may have no more threads
    set_errors();
  }
}

}  // namespace lockstep::dist
