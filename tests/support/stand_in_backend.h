// A backend that stands in for one on a device: it is registered for CUDA tensors, which no machine without a GPU has,
// so that operations without tensors are what reaches it. They are "queued": the host goes on, and they end when the
// test lets them, or when the connector is interrupted, as operations of NCCL do.
#pragma once
#include <ATen/core/ivalue.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "collectives/backend/backend.h"

namespace lockstep::testing {

/// A work whose getFuture() is complete at once and whose getFutureResult() is not, as NCCL's.
class QueuedWork : public c10d::Work {
 public:
  QueuedWork() : c10d::Work(-1, c10d::OpType::BARRIER) {}

  void end(c10d::WorkResult result, const std::exception_ptr& error = nullptr) {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(ended_, true)) return;
      exception_ = error;
    }
    result_->markCompleted(c10::IValue(static_cast<int64_t>(result)));
  }

  bool isCompleted() override {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  bool isSuccess() const override { C10_THROW_ERROR(NotImplementedError, "isSuccess of a queued work"); }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(std::vector<at::Tensor>());
    return future;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return result_; }

 private:
  std::mutex mutex_;
  bool ended_ = false;
  const c10::intrusive_ptr<c10::ivalue::Future> result_ = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
};

/// What tests see and say; of one rank.
struct StandIn {
  std::mutex mutex;
  std::condition_variable changed;
  bool hold = false;  // operations wait for release()
  std::string refusal;  // operations throw this at once, as NCCL's errors
  std::vector<c10::intrusive_ptr<QueuedWork>> queued;
  int operations = 0, connections = 0, closed = 0, interrupted = 0;

  void release(c10d::WorkResult result = c10d::WorkResult::SUCCESS, const std::exception_ptr& error = nullptr) {
    std::vector<c10::intrusive_ptr<QueuedWork>> works;
    {
      std::lock_guard lock(mutex);
      std::swap(works, queued);
    }
    for (const auto& work : works) work->end(result, error);
  }
  void wait_until_interrupted() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return interrupted > 0; });
  }
};

class StandInBackend : public c10d::Backend {
 public:
  StandInBackend(int rank, int size, std::shared_ptr<StandIn> state)
      : c10d::Backend(rank, size), state_(std::move(state)) {}
  const std::string getBackendName() const override { return "stand-in"; }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    const auto work = c10::make_intrusive<QueuedWork>();
    std::unique_lock lock(state_->mutex);
    TORCH_CHECK_WITH(DistBackendError, state_->refusal.empty(), state_->refusal);
    ++state_->operations;
    if (state_->hold)
      state_->queued.push_back(work);
    else
      work->end(c10d::WorkResult::SUCCESS);
    return work;
  }

 private:
  const std::shared_ptr<StandIn> state_;
};

class StandInConnector : public dist::BackendConnector {
 public:
  StandInConnector(const dist::GroupDescription& group, std::shared_ptr<StandIn> state)
      : group_(group), state_(std::move(state)) {}

  std::string announcement() override { return "stand-in of rank " + std::to_string(group_.group_rank); }
  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>&,
                                            const std::vector<std::string>& peers, std::chrono::milliseconds) override {
    for (size_t i = 0; i < peers.size(); ++i)
      if (peers[i] != "stand-in of rank " + std::to_string(i)) throw std::runtime_error("announced as " + peers[i]);
    std::lock_guard lock(state_->mutex);
    ++state_->connections;
    return c10::make_intrusive<StandInBackend>(group_.group_rank, static_cast<int>(group_.ranks.size()), state_);
  }
  void interrupt() noexcept override {
    {
      std::lock_guard lock(state_->mutex);
      ++state_->interrupted;
    }
    state_->changed.notify_all();
    state_->release();  // what a device had queued ends, with whatever it has written
  }
  void close() override {
    std::lock_guard lock(state_->mutex);
    ++state_->closed;
  }
  bool lost_connection() const noexcept override { return false; }

 private:
  const dist::GroupDescription group_;
  const std::shared_ptr<StandIn> state_;
};

/// From now on groups on "stand_in" are made of them. `state`: of the calling rank.
template <typename StateOfThisRank>
void register_stand_in(StateOfThisRank state) {
  dist::register_backend("stand_in", c10::DeviceType::CUDA, [state](const dist::GroupDescription& group) {
    return std::make_unique<StandInConnector>(group, state());
  });
}

}  // namespace lockstep::testing
