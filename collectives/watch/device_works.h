// Holds the operations of one group on a device's stream: the host has queued them and goes on. The transport's own
// thread reports them as done or as failed; those that an abort has cut off are kept for the rank to throw.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "collectives/watch/entered.h"

namespace lockstep::dist {

/// How an operation on a device ended, as WorkResult of c10d. `cut`: the group was aborted before its end.
enum class DeviceEnd { pending, done, timeout, error, cut };

struct DeviceOperation {
  std::vector<Entered> entered;  // several where operations were coalesced
  // A work holds its tensors, whose memory the program may want back before the end is reported.
  c10::weak_intrusive_ptr<c10d::Work> work;
  std::atomic<DeviceEnd> end = DeviceEnd::pending;
  std::exception_ptr error;  // the transport's, where it has one; written before `end`

  explicit DeviceOperation(std::vector<Entered> entered, const c10::intrusive_ptr<c10d::Work>& work)
      : entered(std::move(entered)), work(work) {}
  bool failed() const { return end != DeviceEnd::pending && end != DeviceEnd::done; }
};

class DeviceWorks : public std::enable_shared_from_this<DeviceWorks> {
 public:
  /// `ended` is called once for each operation that is done or has failed, and was not cut; from any thread.
  using Ended = std::function<void(const DeviceOperation& operation, DeviceEnd end)>;
  explicit DeviceWorks(Ended ended) : ended_(std::move(ended)) {}

  std::shared_ptr<DeviceOperation> add(std::vector<Entered> entered, const c10::intrusive_ptr<c10d::Work>& work);
  /// Asks the device which operations are done by now, of those whose work is still held. It may wait for a lock of the
  /// driver. By the rank's own thread.
  void refresh();
  /// Whether an operation has neither ended nor been cut off.
  bool pending() const;
  /// Cuts off all that is not known to be done: its results mean nothing from now on. Returns it. From any thread.
  std::vector<std::shared_ptr<DeviceOperation>> cut();
  /// Ends all reports.
  void close();
  /// Returns what was cut off or has failed since the last call, the oldest first.
  std::vector<std::shared_ptr<DeviceOperation>> take_failed();

 private:
  void end(const std::shared_ptr<DeviceOperation>& operation, DeviceEnd end);

  mutable std::mutex mutex_;
  std::mutex ended_mutex_;
  Ended ended_;  // under ended_mutex_
  std::vector<std::shared_ptr<DeviceOperation>> pending_, failed_;
};

}  // namespace lockstep::dist
