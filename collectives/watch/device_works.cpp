#include "collectives/watch/device_works.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <utility>

namespace lockstep::dist {

namespace {
using Future = c10::intrusive_ptr<c10::ivalue::Future>;

/// Returns the future that is complete when the device is done; getFuture()'s is complete once the work is queued.
Future result_of(c10d::Work& work) {
  try {
    return work.getFutureResult();
  } catch (const c10::Error&) {  // a transport that has none completes getFuture() at the end
    return work.getFuture();
  }
}

DeviceEnd end_of(const c10::ivalue::Future& future) {
  if (future.hasError()) return DeviceEnd::error;
  const c10::IValue value = future.constValue();
  if (!value.isInt()) return DeviceEnd::done;
  switch (static_cast<c10d::WorkResult>(value.toInt())) {
    case c10d::WorkResult::SUCCESS:
      return DeviceEnd::done;
    case c10d::WorkResult::TIMEOUT:
      return DeviceEnd::timeout;
    default:
      return DeviceEnd::error;
  }
}
}  // namespace

std::shared_ptr<DeviceOperation> DeviceWorks::add(std::vector<Entered> entered,
                                                  const c10::intrusive_ptr<c10d::Work>& work) {
  const auto operation = std::make_shared<DeviceOperation>(std::move(entered), work);
  {
    std::lock_guard lock(mutex_);
    pending_.push_back(operation);
  }
  if (const Future future = result_of(*work))
    future->addCallback(
        [works = weak_from_this(), of = std::weak_ptr(operation)](c10::ivalue::Future& result) {
          const auto self = works.lock();
          const auto operation = of.lock();
          if (self && operation) self->end(operation, end_of(result));
        },
        /*uses_future=*/false);
  return operation;
}

void DeviceWorks::end(const std::shared_ptr<DeviceOperation>& operation, DeviceEnd end) {
  std::exception_ptr error;
  // NCCL's work asks its communicator for the error when it is asked whether it is done.
  if (const auto work = operation->work.lock(); work && end == DeviceEnd::error && work->isCompleted())
    error = work->exception();
  {
    std::lock_guard lock(mutex_);
    if (std::erase(pending_, operation) == 0) return;  // cut off, or seen to be done before
    operation->error = error;
    operation->end = end;
    if (end != DeviceEnd::done) failed_.push_back(operation);
  }
  std::lock_guard lock(ended_mutex_);
  if (ended_) ended_(*operation, end);
}

void DeviceWorks::close() {
  std::lock_guard lock(ended_mutex_);
  ended_ = nullptr;
}

void DeviceWorks::refresh() {
  std::vector<std::shared_ptr<DeviceOperation>> pending;
  {
    std::lock_guard lock(mutex_);
    pending = pending_;
  }
  for (const auto& operation : pending)
    if (const auto work = operation->work.lock(); work && work->isCompleted() && !work->exception())
      end(operation, DeviceEnd::done);
}

bool DeviceWorks::pending() const {
  std::lock_guard lock(mutex_);
  return !pending_.empty();
}

std::vector<std::shared_ptr<DeviceOperation>> DeviceWorks::cut() {
  std::lock_guard lock(mutex_);
  failed_.reserve(failed_.size() + pending_.size());
  for (const auto& operation : pending_) {
    operation->end = DeviceEnd::cut;
    failed_.push_back(operation);
  }
  return std::exchange(pending_, {});
}

std::vector<std::shared_ptr<DeviceOperation>> DeviceWorks::take_failed() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<DeviceOperation>> failed;
  std::swap(failed, failed_);
  std::sort(failed.begin(), failed.end(),
            [](const auto& a, const auto& b) { return a->entered.front().entry < b->entered.front().entry; });
  return failed;
}

}  // namespace lockstep::dist
