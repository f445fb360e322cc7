// A batch is the operations between startCoalescing and endCoalescing, as c10d has them for NCCL: sends and receives of
// a device begin together, so that ranks that both send first do not wait for each other.
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "collectives/watch/watched_call.h"

namespace lockstep::dist {

using c10d::OpType;
using log_layout::EntryState;

namespace {
/// The work of a batch some of which is the host's. It is done when all is.
class BatchWork : public c10d::Work {
 public:
  explicit BatchWork(std::vector<WatchedBackend::WorkPtr> parts)
      : c10d::Work(-1, OpType::COALESCED), parts_(std::move(parts)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& part : parts_) part->wait(timeout);
    return true;
  }
  bool isCompleted() override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& part : parts_)
      if (auto error = part->exception()) return error;
    return nullptr;
  }
  void synchronize() override {
    for (const auto& part : parts_) part->synchronize();
  }

 private:
  const std::vector<WatchedBackend::WorkPtr> parts_;
};
}  // namespace

void WatchedBackend::drop_batch() {
  std::optional<OperationBatch> dropped;
  {
    std::lock_guard lock(order_);
    std::swap(dropped, batch_);
  }
  if (!dropped) return;
  for (const Entered& each : dropped->entered) group_->finish(each, EntryState::failed);
}

void WatchedBackend::startCoalescing() {
  const auto device = transport();
  if (!device->supportsCoalescing()) return device->startCoalescing();  // which refuses
  drop_batch();  // of a program that has left one without an end
  std::lock_guard lock(order_);
  batch_.emplace();
}

WatchedBackend::WorkPtr WatchedBackend::endCoalescing() {
  std::optional<OperationBatch> batch;
  {
    std::lock_guard lock(order_);
    std::swap(batch, batch_);
  }
  if (!batch) return transport()->endCoalescing();  // which refuses: nothing was begun
  std::vector<WorkPtr> works = std::move(batch->on_host);
  if (!batch->operations.empty()) {
    const auto issue = [&](Backend& transport) {
      transport.startCoalescing();
      try {
        for (const OperationBatch::Operation& each : batch->operations) {
          const c10::OptionalStreamGuard current(each.stream);
          each.issue(transport);
        }
      } catch (...) {  // thrown on, when the transport's group is closed
        const auto error = std::current_exception();
        try {
          transport.endCoalescing();
        } catch (const std::exception&) {  // comes of the first
        }
        std::rethrow_exception(error);
      }
      return transport.endCoalescing();
    };
    Call call(config(), CollectiveOp::coalesced, {});
    call.results = std::move(batch->results);
    call.after = std::move(batch->finish);
    call.ended = batch->entered;
    try {
      if (batch->collectives) {
        works.push_back(run(call, OpType::COALESCED, /*async=*/true, issue));
      } else {  // a message is between its two ranks, and so are several: the last stands for them
        const Entered last = call.ended.back();
        call.ended.pop_back();
        call.message = true;
        std::unique_lock lock(order_);
        works.push_back(issue_entered(call, last, OpType::COALESCED, /*reports=*/false, lock, issue));
      }
    } catch (...) {
      for (const Entered& each : batch->entered) group_->finish(each, EntryState::failed);
      throw;
    }
  }
  if (works.size() > 1) return c10::make_intrusive<BatchWork>(std::move(works));
  return works.empty() ? nullptr : works.front();
}

}  // namespace lockstep::dist
